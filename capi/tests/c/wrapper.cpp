// ebbtide.hpp: everything that the C interface has, through owners, exceptions and spans of time.
#include "ebbtide.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using ebbtide::Call;
using ebbtide::Checked;
using ebbtide::Code;
using ebbtide::Error;
using ebbtide::Filter;
using ebbtide::Moment;
using ebbtide::Operation;
using ebbtide::Reader;
using Path = std::filesystem::path;

#define CHECK(...)                                                                                 \
    do {                                                                                           \
        if (!(__VA_ARGS__)) {                                                                      \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #__VA_ARGS__);   \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

#define THROWS(expected, ...) CHECK(code_of([&] { (void)(__VA_ARGS__); }) == Code::expected)

namespace {

const char *const KEPT = "durability=always keep-log=24h hash-seed=7";
const ebbtide::Time NOON(1748865600000000us);

// The code of the error that this throws; 0 if it throws none.
template <typename Work> Code code_of(Work work) {
    try {
        work();
    } catch (const Error &error) {
        CHECK(error.what()[0] != '\0');
        return error.code();
    }
    return Code{};
}

static_assert(!std::is_copy_constructible_v<Filter> && std::is_move_constructible_v<Filter>);
static_assert(!std::is_copy_constructible_v<Reader> && std::is_move_assignable_v<Reader>);
static_assert(!std::is_copy_constructible_v<ebbtide::Batch>);
static_assert(std::is_nothrow_move_constructible_v<ebbtide::Batch>);
static_assert(!std::is_copy_constructible_v<ebbtide::Claim>);
static_assert(std::is_nothrow_move_constructible_v<ebbtide::Claim>);
static_assert(!std::is_copy_constructible_v<ebbtide::History>);
static_assert(std::is_nothrow_copy_constructible_v<Error>);

// Keys of all types are the same bytes.
void keys(const Path &home) {
    Filter seen(home / "keys", "fingerprint last=100k fpr=0.000001");
    const std::string text("a\0b", 3);
    CHECK(seen.insert(text));
    const std::vector<unsigned char> vector{'a', 0, 'b'};
    const std::array<std::byte, 3> array{std::byte{'a'}, std::byte{0}, std::byte{'b'}};
    CHECK(seen.contains(std::string_view(text)) && seen.contains(vector) && seen.contains(array));
    CHECK(seen.contains({text.data(), 3}) && !seen.contains("a") && !seen.contains(""));
    CHECK(seen.check_and_insert("") == Checked::fresh);
    CHECK(seen.contains(std::string()) && seen.contains({nullptr, 0}));
    // Bulk operations take ranges of them.
    CHECK(seen.contains_all(std::vector<std::vector<unsigned char>>{vector}) ==
          std::vector{true});
    CHECK(seen.insert_all(std::set<std::string>{"x", "y"}) == 2);
    const std::array names{"x", "new", "y", "new"};
    CHECK(seen.contains_all(names) == std::vector{true, false, true, false});
    using C = Checked;
    CHECK(seen.check_and_insert_all(names) == std::vector{C::present, C::fresh, C::present,
                                                          C::present});
    CHECK(seen.insert_all(std::vector<std::string>{}) == 0);
    seen.close();
    seen.close();
    CHECK(seen.native() == nullptr);
    THROWS(closed, seen.contains("x"));
    THROWS(closed, seen.insert("x"));
    THROWS(closed, seen.claim("x", 1min));
}

// The settings of calls have an effect.
void calls(const Path &home) {
    Filter seen = Filter::create(home / "calls", "time-limited window=1h fpr=0.000001",
                                 "durability=never");
    CHECK(seen.insert("a", Call().time(NOON)));
    CHECK(seen.contains("a", Call().time(NOON + 59min)));
    CHECK(!seen.contains("a", Call().time(NOON + 3h)));
    CHECK(seen.check_and_insert("b", Call().time(NOON + 3h).since_last_accepted()) ==
          Checked::fresh);
    CHECK(seen.check_and_insert("late", Call().time(NOON)) == Checked::too_late);
    CHECK(!seen.insert("late", Call().time(NOON)));
    std::vector<Checked> answers;
    seen.check_and_insert_all(std::array{"b", "c"}, answers, Call().time(NOON + 3h));
    CHECK(answers == std::vector{Checked::present, Checked::fresh});
    THROWS(argument, seen.insert("d", Call().time(ebbtide::Time(-1us))));
    THROWS(argument, seen.insert("d", Call().durable_within(-1us)));
    THROWS(argument, seen.insert("d", Call().durable_within(0us)));
    THROWS(time_ahead, seen.insert("d", Call().time(NOON + 24h * 365 * 20)));
    // What must not wait for the disk.
    THROWS(would_wait, seen.insert("d", Call().durable().without_waiting()));
    CHECK(!seen.contains("d", Call().time(NOON + 3h)));
    CHECK(seen.insert("e", Call().durable_within(1s)));
    CHECK(seen.insert("f", Call().without_sync()));
    seen.sync();
    CHECK(seen.checkpoint() > 0);
    CHECK(seen.stat().front() == '{' && seen.digest().size() == 32);

    Filter counting(home / "counting", "counting capacity=1000 counter-bits=4");
    CHECK(counting.insert("a", Call().weight(3)) && counting.remove("a"));
    CHECK(!counting.remove("b"));
    CHECK(counting.estimate("a").count == 2 && !counting.estimate("a").at_least);
    CHECK(counting.insert("a", Call().weight(100)) && counting.estimate("a").at_least);
    THROWS(unsupported, counting.age("a"));

    Filter timing(home / "timing", "time-limited window=1h fpr=0.000001");
    CHECK(timing.insert("a", Call().time(NOON)));
    const Call later = Call().time(NOON + 20min);
    const std::optional<ebbtide::Age> age = timing.age("a", later);
    CHECK(age && !age->is_items && age->time() > 5min && age->time() <= 20min);
    CHECK(!timing.age("b", later));
    CHECK(timing.seen_within("a", 30min, later) && !timing.seen_within("a", 5min, later));
    THROWS(parameter, timing.seen_within_items("a", 5, later));
    Filter items(home / "items", "block-timing last=1000");
    CHECK(items.insert("a") && items.age("a")->is_items);
    CHECK(items.seen_within_items("a", 500));
    CHECK(items.insert("b"));
    CHECK(items.distinct().keys > 1.9 && items.distinct().keys < 2.1);
    CHECK(items.distinct_within_items(500).reach == 2);
    CHECK(timing.distinct_within(30min, later).keys > 0.9);
    THROWS(parameter, items.distinct_within(30min));
}

void errors(const Path &home) {
    const Path path = home / "errors";
    THROWS(not_a_filter, Filter::open_existing(path));
    THROWS(not_a_filter, Reader(path));
    THROWS(parameter, Filter(path, "no-such-kind last=5"));
    THROWS(parameter, Filter(path, "fingerprint last=5", "colour=red"));
    THROWS(argument, Filter(path, std::string_view("bloom\0", 6)));
    THROWS(argument, Filter(Path(std::string("a\0b", 3)), "bloom capacity=5"));
    Filter seen(path, "fingerprint last=1000");
    try {
        Filter::create(path, "fingerprint last=1000");
        CHECK(false);
    } catch (const Error &error) {
        CHECK(error.code() == Code::exists && error.path() == path.string());
        CHECK(std::string(error.what()).find(path.string()) != std::string::npos);
        const Error copy = error;
        CHECK(copy.path() == error.path());
    }
    THROWS(mismatch, Filter(path, "bloom capacity=5"));
    Reader reader(path);
    THROWS(argument, Reader(path, Moment::time(ebbtide::Time(-1us))));
    CHECK(!reader.contains("a") && seen.insert("a") && reader.contains("a"));
    Filter moved = std::move(seen);
    CHECK(moved.contains("a"));
    seen = std::move(moved);
    CHECK(seen.contains("a"));
}

void batches(const Path &home) {
    Filter seen(home / "batches", "time-limited window=1h fpr=0.000001", KEPT);
    ebbtide::Batch batch = seen.batch(Call().durable());
    batch.insert("a");
    CHECK(batch.check_and_insert("b") == Checked::fresh);
    CHECK(batch.check_and_insert("b") == Checked::present);
    batch.set_position(3, 900);
    CHECK(!seen.contains("a") && !seen.position(3));
    batch.commit();
    CHECK(seen.contains("a") && seen.contains("b") && seen.position(3) == 900);
    batch.insert("c");
    batch.clear();
    batch.commit();
    CHECK(!seen.contains("c"));
    CHECK(batch.check_and_insert("d") == Checked::fresh && seen.insert("d"));
    THROWS(conflict, batch.commit());
    batch.clear();
    ebbtide::Claim claim = seen.claim("e", 1min);
    batch.confirm(std::move(claim));
    CHECK(!claim && !seen.contains("e"));
    THROWS(lease_lost, batch.confirm(std::move(claim)));
    batch.commit();
    CHECK(seen.contains("e") && seen.claim("e", 1min).seen());
    // What the batch does not commit is released with it.
    { ebbtide::Batch other = seen.batch(); other.confirm(seen.claim("f", 1min)); }
    CHECK(seen.claims().empty() && !seen.contains("f"));
    // Nor is a claim held any more that the batch could not take.
    ebbtide::Claim early = seen.claim("h", 1min);
    const ebbtide::Time ahead = NOON + 24h * 365 * 20;
    THROWS(time_ahead, batch.confirm(std::move(early), Call().time(ahead)));
    CHECK(!early && seen.claims().empty());
    {
        Filter second(home / "second", "fingerprint last=100k");
        ebbtide::Claim foreign = second.claim("j", 1min);
        THROWS(argument, batch.confirm(std::move(foreign)));
        CHECK(foreign && second.claims().size() == 1);
    }
    ebbtide::Batch moved = std::move(batch);
    THROWS(argument, batch.insert("a"));
    ebbtide::Claim kept = seen.claim("i", 1min);
    THROWS(argument, batch.confirm(std::move(kept)));
    CHECK(kept && seen.claims().size() == 1);
    CHECK(kept.release());
    moved.insert("g");
    moved.commit();
    CHECK(seen.contains("g"));
}

void claims(const Path &home) {
    Filter seen(home / "claims", "time-limited window=1h fpr=0.000001");
    {
        const ebbtide::Claim claim = seen.claim("a", 1min);
        CHECK(claim && !claim.seen() && !claim.in_progress() && claim.token() > 0);
        const ebbtide::Claim second = seen.claim("a", 1min);
        CHECK(!second && second.in_progress());
        CHECK(*second.until() > std::chrono::system_clock::now() + 30s);
        const std::vector<ebbtide::OpenClaim> held = seen.claims();
        CHECK(held.size() == 1 && held[0].token == claim.token());
        CHECK(held[0].hash == seen.key_hash("a") && held[0].age + held[0].remaining == 1min);
    }
    // A handler that throws leaves the key free.
    CHECK(seen.claims().empty());
    try {
        const ebbtide::Claim claim = seen.claim("a", 1min);
        throw std::runtime_error("the work failed");
    } catch (const std::runtime_error &) {
    }
    ebbtide::Claim claim = seen.claim("a", 1min);
    CHECK(claim.extend(1h) > std::chrono::system_clock::now() + 50min);
    ebbtide::Claim moved = std::move(claim);
    CHECK(moved && !claim);
    THROWS(lease_lost, claim.confirm());
    THROWS(lease_lost, claim.extend(1min));
    moved.confirm();
    CHECK(!moved && seen.contains("a") && seen.claim("a", 1min).seen());
    // The lease is over: nothing is inserted.
    ebbtide::Claim lost = seen.claim("b", 1ms);
    std::this_thread::sleep_for(50ms);
    THROWS(lease_lost, lost.confirm());
    CHECK(!lost && !lost.release() && !seen.contains("b"));
    // Handed to somebody else by its token.
    const std::uint64_t token = seen.claim("c", 1min).detach();
    CHECK(seen.claims().size() == 1);
    seen.resume_claim("c", token).confirm();
    CHECK(seen.contains("c"));
    ebbtide::Claim held = seen.claim("d", 1min);
    CHECK(held.release() && !held.release());
    held = seen.claim("d", 1min);
    CHECK(seen.end_claim("d") && !seen.end_claim("d"));
    THROWS(lease_lost, held.extend(1min));
    THROWS(argument, seen.claim("e", -1ms));
    CHECK(seen.claim("", 1min));
    std::vector<ebbtide::Claim> many;
    for (int key = 0; key < 1000; key++) many.push_back(seen.claim(std::to_string(key), 1min));
    CHECK(seen.claims().size() == 1000);
    many.clear();
    CHECK(seen.claims().empty());
}

void history(const Path &home) {
    const Path path = home / "history";
    Filter seen(path, "time-limited window=1h fpr=0.000001", KEPT);
    ebbtide::History log(path);
    CHECK(!log.read() && !log.wait(1ms) && log.position() == 1);
    seen.insert("a", Call().time(NOON));
    Operation first = log.wait();
    CHECK(first.kind == Operation::Kind::insert && first.hash == seen.key_hash("a"));
    CHECK(first.time == NOON && first.is_stream_time && first.weight == 1 && first.left == 0);
    ebbtide::Batch batch = seen.batch();
    batch.set_position(3, 800);
    batch.commit();
    batch.insert("b", Call().time(NOON + 1min));
    batch.set_position(3, 900);
    batch.commit();
    seen.clear();
    std::vector<Operation::Kind> kinds;
    for (const Operation &one : log) kinds.push_back(one.kind);
    using Kind = Operation::Kind;
    CHECK(kinds == std::vector{Kind::position, Kind::insert, Kind::position, Kind::clear});
    ebbtide::History rest(path, Moment::lsn(first.commit_lsn), true);
    CHECK(rest.read()->position == 800 && rest.read()->hash == seen.key_hash("b"));
    CHECK(rest.wait(1s)->position == 900);

    CHECK(!seen.contains("a", Call().time(NOON)));
    Reader then(path, Moment::lsn(first.commit_lsn));
    CHECK(then.contains("a") && !then.contains("b") && !then.position(3));
    CHECK(Reader(path, Moment::time(NOON + 1min)).contains("b"));
    CHECK(!Reader(path, Moment::position(3, 899)).contains("b"));
    THROWS(not_kept, Reader(path, Moment::lsn(1000000)));
    THROWS(not_kept, ebbtide::History(path, Moment::lsn(1000000)));

    const ebbtide::Restored restored =
        ebbtide::restore_at(path, Moment::lsn(first.commit_lsn), home / "restored");
    CHECK(restored.inserts == 1 && restored.next_lsn > first.lsn);
    CHECK(Filter::open_existing(home / "restored").contains("a", Call().time(NOON)));
}

void copies_and_other_parameters(const Path &home) {
    const Path path = home / "altered";
    const char *const narrow = "fingerprint last=100 fpr=1e-9";
    const char *const wide = "fingerprint last=10000 fpr=1e-9";
    Filter seen(path, narrow, KEPT);
    std::vector<std::string> keys;
    for (int key = 0; key < 1000; key++) keys.push_back(std::to_string(key));
    CHECK(seen.insert_all(keys) == 1000);
    CHECK(!seen.contains("0"));
    seen.backup(home / "backup");
    THROWS(exists, seen.backup(home / "backup"));
    ebbtide::restore(home / "backup", home / "copy");
    CHECK(Reader(home / "copy").digest() == seen.digest());

    const ebbtide::AlterationPlan plan = ebbtide::plan_alteration(path, wide);
    CHECK(plan.has_window && plan.first_lsn == 1 && plan.records >= 1000 && plan.since);
    CHECK(plan.memory_after > plan.memory_before);
    const ebbtide::Altered altered = seen.alter(wide);
    CHECK(altered.is_whole && altered.operations == 1000 && altered.lsn > 1000 && altered.since);
    CHECK(altered.stopped > 0us && seen.contains("0"));
    seen.alter(narrow, true);

    const ebbtide::Remade all = ebbtide::remake({path}, home / "all", wide, "durability=never");
    CHECK(all.operations == 1000 && all.is_whole && all.since);
    std::uint64_t parts = 0;
    for (std::uint64_t part = 0; part < 3; part++) {
        const Path to = home / ("part" + std::to_string(part));
        const ebbtide::Remade made = ebbtide::remake({path}, to, wide, {}, {part, 3});
        parts += made.operations;
        const Reader share(to);
        for (const std::string &key : keys) {
            if (ebbtide::share_of(seen.key_hash(key), 3) == part) CHECK(share.contains(key));
        }
    }
    CHECK(parts == 1000);
    THROWS(argument, ebbtide::share_of(1, 0));
    CHECK(ebbtide::plan(wide).find("\"") != std::string::npos);
    THROWS(parameter, ebbtide::plan("bloom"));
    CHECK(!ebbtide::version().empty());
}

// Of threads that check one new key, one is answered `fresh`.
void threads(const Path &home) {
    Filter seen(home / "threads", "fingerprint last=100k fpr=0.000001");
    std::atomic<int> fresh{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (int key = 0; key < 500; key++) {
                fresh += seen.check_and_insert(std::to_string(key)) == Checked::fresh;
            }
        });
    }
    for (auto &thread : threads) thread.join();
    CHECK(fresh == 500);
}

// Waits until a child, which renews a claim without end, was stopped while it held the lock of all
// claims.
bool stop_with_lock(pid_t child, ebbtide::Claim &own) {
    for (int tries = 0; tries < 500; tries++) {
        std::this_thread::sleep_for(3ms);
        CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, nullptr, WUNTRACED) == child);
        const auto extend = [&] { own.extend(1h, Call().waiting_at_most(20ms)); };
        if (code_of(extend) == Code::would_wait) return true;
        CHECK(kill(child, SIGCONT) == 0);
    }
    return false;
}

// A claim that is destroyed or overwritten waits a second at most for a process that is stopped.
void dropped_beside_a_stopped_process(const Path &home) {
    const Path path = home / "stopped";
    const char *const options = "background=off durability=never";
    Filter(path, "bloom capacity=100k", options).close();
    const pid_t child = fork();
    if (child == 0) {
        alarm(300);
        Filter own(path, "bloom capacity=100k", options);
        ebbtide::Claim claim = own.claim("child", 1h);
        for (;;) claim.extend(1h);
    }
    // Ends a wait without a limit, and the program with it.
    alarm(300);
    Filter seen(path, "bloom capacity=100k", options);
    auto first = std::make_unique<ebbtide::Claim>(seen.claim("first", 1h));
    ebbtide::Claim second = seen.claim("second", 1h), third = seen.claim("third", 1h);
    if (stop_with_lock(child, third)) {
        const auto begun = std::chrono::steady_clock::now();
        first.reset();
        second = std::move(third);
        CHECK(second && std::chrono::steady_clock::now() - begun < 20s);
    }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, nullptr, 0) == child);
    alarm(0);
    CHECK(second.release() && seen.insert("a"));
}

}  // namespace

int main(int count, char **arguments) {
    CHECK(count == 2);
    const Path home = arguments[1];
    keys(home);
    calls(home);
    errors(home);
    batches(home);
    claims(home);
    history(home);
    copies_and_other_parameters(home);
    threads(home);
    dropped_beside_a_stopped_process(home);
    std::puts("passed");
}
