// ebbtide for C++17: owners, exceptions, std::chrono and std::string_view over ebbtide.h.
//
// Each function calls the one of ebbtide.h with the same name, whose comment has its guarantees;
// the comments here say what differs. Link with -lebbtide, or with the target ebbtide::ebbtide of
// CMake. Every function that can fail throws ebbtide::Error.
//
// Any number of threads may use a Filter or a Reader, except while it is closed, moved or
// destroyed.
// Batches, claims and histories belong to one thread at a time. Batches and claims must be
// destroyed before the filter is closed or destroyed; it may be moved meanwhile.
#ifndef EBBTIDE_HPP
#define EBBTIDE_HPP

#if __cplusplus < 201703L
#error "ebbtide.hpp needs C++17: compile with -std=c++17"
#endif

#include "ebbtide.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ebbtide {

// A time as the filter has it: microseconds since the Unix epoch.
using Time = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

// What failed. A later version of the library may have codes that are not listed here.
enum class Code : int {
    io = EBBTIDE_IO,
    full_disk = EBBTIDE_FULL_DISK,
    damaged = EBBTIDE_DAMAGED,
    version = EBBTIDE_VERSION,
    not_a_filter = EBBTIDE_NOT_A_FILTER,
    exists = EBBTIDE_EXISTS,
    occupied = EBBTIDE_OCCUPIED,
    mismatch = EBBTIDE_MISMATCH,
    parameter = EBBTIDE_PARAMETER,
    locked = EBBTIDE_LOCKED,
    crowded = EBBTIDE_CROWDED,
    forked = EBBTIDE_FORKED,
    closed = EBBTIDE_CLOSED,
    retired = EBBTIDE_RETIRED,
    poisoned = EBBTIDE_POISONED,
    time_ahead = EBBTIDE_TIME_AHEAD,
    unsupported = EBBTIDE_UNSUPPORTED,
    would_wait = EBBTIDE_WOULD_WAIT,
    diverged = EBBTIDE_DIVERGED,
    other = EBBTIDE_OTHER,
    conflict = EBBTIDE_CONFLICT,
    lease_lost = EBBTIDE_LEASE_LOST,
    claims_full = EBBTIDE_CLAIMS_FULL,
    not_kept = EBBTIDE_NOT_KEPT,
    argument = EBBTIDE_ARGUMENT,
    panic = EBBTIDE_PANIC,
};

// An error: what() is a sentence with the file, what was expected, what was found, and the remedy.
class Error : public std::runtime_error {
public:
    Error(Code code, const std::string &message, std::string path = {})
        : std::runtime_error(message), code_(code),
          path_(std::make_shared<const std::string>(std::move(path))) {}

    Code code() const noexcept { return code_; }

    // The file or directory that the error is about; empty if it is about none.
    const std::string &path() const noexcept { return *path_; }

private:
    Code code_;
    // Shared, because copying an exception must not throw.
    std::shared_ptr<const std::string> path_;
};

namespace detail {

// The place where the library stores an error, and what takes it from there.
class Failure {
public:
    Failure() = default;
    Failure(const Failure &) = delete;
    Failure &operator=(const Failure &) = delete;
    ~Failure() { ebbtide_error_free(error_); }

    operator ebbtide_error **() noexcept { return &error_; }

    // Returns the answer, unless there is an error: that is thrown.
    template <typename T> T checked(T answer) const {
        if (error_ != nullptr) raise();
        return answer;
    }

    // Whether there is no error.
    bool none() const noexcept { return error_ == nullptr; }
    // Whether there is an error with this code.
    bool is(Code code) const noexcept { return !none() && code == this->code(); }

private:
    Code code() const noexcept { return static_cast<Code>(ebbtide_error_code(error_)); }

    [[noreturn]] void raise() const {
        const char *path = ebbtide_error_path(error_);
        throw Error(code(), ebbtide_error_message(error_), path == nullptr ? "" : path);
    }

    ebbtide_error *error_ = nullptr;
};

// A text as C has it. One with a NUL byte, which would end it too early, is refused.
class Text {
public:
    Text(std::string text, const char *name) : text_(std::move(text)) {
        if (text_.find('\0') == std::string::npos) return;
        throw Error(Code::argument, std::string(name) + ": expected no NUL byte, found one");
    }

    const char *get() const noexcept { return text_.c_str(); }

    // NULL, for the defaults, if it is empty.
    const char *or_null() const noexcept { return text_.empty() ? nullptr : text_.c_str(); }

private:
    std::string text_;
};

inline Text path(const std::filesystem::path &path) { return Text(path.string(), "path"); }
inline Text spec(std::string_view spec) { return Text(std::string(spec), "spec"); }
inline Text options(std::string_view options) { return Text(std::string(options), "options"); }

// A text that the library hands out.
inline std::string taken(char *text, const Failure &failure) {
    std::unique_ptr<char, void (*)(char *)> owned(text, ebbtide_string_free);
    failure.checked(text);
    return owned.get();
}

template <typename Duration> std::uint64_t positive(Duration span, const char *name) {
    if (span.count() < 0) {
        throw Error(Code::argument, std::string(name) + ": expected none before 0, found " +
                                        std::to_string(span.count()));
    }
    return static_cast<std::uint64_t>(span.count());
}

inline std::chrono::microseconds micros(std::uint64_t count) {
    return std::chrono::microseconds(static_cast<std::int64_t>(count));
}

inline Time time(std::uint64_t micros_since_epoch) { return Time(micros(micros_since_epoch)); }

inline std::optional<Time> time_if(bool there, std::uint64_t micros_since_epoch) {
    return there ? std::optional(time(micros_since_epoch)) : std::nullopt;
}

// Whether a type is a container of bytes in one piece: std::vector<std::byte>, std::span and so on.
template <typename T, typename = void> struct has_bytes : std::false_type {};
template <typename T>
struct has_bytes<T, std::void_t<decltype(std::declval<const T &>().data()),
                                decltype(std::declval<const T &>().size())>>
    : std::bool_constant<sizeof(*std::declval<const T &>().data()) == 1 &&
                         !std::is_convertible_v<const T &, std::string_view>> {};

}  // namespace detail

// A key: bytes of any values, which are not copied. Made of whatever a std::string_view is made of,
// and of any container of bytes. A `const char *` ends at its NUL byte.
class Key {
public:
    Key(const void *bytes, std::size_t length) noexcept : key_{bytes, length} {}

    template <typename T,
              std::enable_if_t<std::is_convertible_v<const T &, std::string_view>, int> = 0>
    Key(const T &text) : Key(std::string_view(text).data(), std::string_view(text).size()) {}

    template <typename T, std::enable_if_t<detail::has_bytes<T>::value, int> = 0>
    Key(const T &bytes) : Key(bytes.data(), bytes.size()) {}

    const void *bytes() const noexcept { return key_.bytes; }
    std::size_t length() const noexcept { return key_.length; }
    const ebbtide_key &native() const noexcept { return key_; }

private:
    ebbtide_key key_;
};

namespace detail {

template <typename Keys> std::vector<ebbtide_key> all(const Keys &keys) {
    using Element = decltype(*std::begin(keys));
    static_assert(std::is_lvalue_reference_v<Element> ||
                      std::is_same_v<std::decay_t<Element>, std::string_view>,
                  "the range must hold its keys: they are not copied");
    std::vector<ebbtide_key> found;
    found.reserve(static_cast<std::size_t>(std::distance(std::begin(keys), std::end(keys))));
    for (const auto &key : keys) found.push_back(Key(key).native());
    return found;
}

}  // namespace detail

// Settings of one call, joined like Call().time(sent).durable(); a default one has none.
class Call {
public:
    // The time of the operation, instead of the clock's.
    Call &time(Time at) {
        call_.flags |= EBBTIDE_WITH_TIME;
        call_.time_us = detail::positive(at.time_since_epoch(), "time");
        return *this;
    }
    // The weight of each key: a count, or an importance.
    Call &weight(double weight) noexcept {
        call_.flags |= EBBTIDE_WITH_WEIGHT;
        call_.weight = weight;
        return *this;
    }
    // Only new keys are inserted: a key stays in the window since it was last accepted.
    Call &since_last_accepted() noexcept {
        call_.flags |= EBBTIDE_SINCE_LAST_ACCEPTED;
        return *this;
    }
    // Throws Code::would_wait where the call would have to wait; nothing has happened then.
    Call &without_waiting() noexcept {
        call_.flags |= EBBTIDE_WITHOUT_WAITING;
        return *this;
    }
    // Throws Code::would_wait once the call has waited this long, and at least 10 ms, for a live
    // owner of a lock, such as a stopped process; nothing has happened then. It waits as long as it
    // takes for what makes progress, such as a sync.
    Call &waiting_at_most(std::chrono::microseconds limit) {
        // 0 is no limit.
        call_.wait_us = std::max<std::uint64_t>(detail::positive(limit, "waiting_at_most"), 1);
        return *this;
    }
    // The call returns when its records are on the disk.
    Call &durable() noexcept { return durability(EBBTIDE_DURABILITY_ALWAYS, 0); }
    // The records of the call are on the disk after this span at the latest, from 1 µs to a day.
    Call &durable_within(std::chrono::microseconds span) {
        return durability(EBBTIDE_DURABILITY_INTERVAL, detail::positive(span, "durable_within"));
    }
    // The call never causes a sync.
    Call &without_sync() noexcept { return durability(EBBTIDE_DURABILITY_NEVER, 0); }

    const ebbtide_call *native() const noexcept { return &call_; }

private:
    Call &durability(std::uint32_t kind, std::uint64_t interval) noexcept {
        call_.durability = kind;
        call_.interval_us = interval;
        return *this;
    }

    ebbtide_call call_ = EBBTIDE_CALL_INIT;
};

// The answer of check_and_insert.
enum class Checked : std::uint8_t {
    present = EBBTIDE_PRESENT,
    fresh = EBBTIDE_NEW,  // New: it was not in the window, and is now.
    too_late = EBBTIDE_TOO_LATE,
    none = EBBTIDE_NO_ANSWER,  // In check_and_insert_all with a vector, after an error.
};

// A lower bound of an age, in the unit of the filter's window.
struct Age {
    std::uint64_t amount;
    bool is_items;  // Otherwise microseconds.

    // The age as a span of time; only if !is_items.
    std::chrono::microseconds time() const { return detail::micros(amount); }
};

// How many distinct keys a window or a part of it has.
struct Cardinality {
    double keys;
    double standard_error;
    std::uint64_t reach;  // How far back, in the unit of the filter's window.
};

// How often a key was inserted.
struct Estimate {
    double count;
    bool at_least;  // A counter is saturated: it may have been more often.
};

// A moment of a filter's past.
class Moment {
public:
    // After the record with this LSN.
    static Moment lsn(std::uint64_t lsn) noexcept { return Moment(EBBTIDE_AT_LSN, lsn, 0); }
    // Before the first operation that is later than this time.
    static Moment time(Time at) {
        return Moment(EBBTIDE_AT_TIME, detail::positive(at.time_since_epoch(), "time"), 0);
    }
    // Before the position of a source passed this one.
    static Moment position(std::uint64_t source, std::uint64_t position) noexcept {
        return Moment(EBBTIDE_AT_POSITION, position, source);
    }

    const ebbtide_moment *native() const noexcept { return &moment_; }

private:
    Moment(std::uint32_t at, std::uint64_t number, std::uint64_t source) noexcept
        : moment_{at, number, source} {}

    ebbtide_moment moment_;
};

// A claim in the list of those that are held.
struct OpenClaim {
    std::uint64_t hash;
    std::uint64_t token;
    std::chrono::microseconds age;
    std::chrono::microseconds remaining;
};

// What filters and readers have.
class Handle {
public:
    bool contains(Key key, const Call &call = {}) const {
        detail::Failure failure;
        return failure.checked(ebbtide_contains(open(), key.bytes(), key.length(), call.native(),
                                                failure)) == 1;
    }

    // Keys are a range of anything that a Key is made of. One answer for each, in their order.
    template <typename Keys>
    std::vector<bool> contains_all(const Keys &keys, const Call &call = {}) const {
        const std::vector<ebbtide_key> all = detail::all(keys);
        std::vector<std::uint8_t> answers(all.size());
        detail::Failure failure;
        failure.checked(ebbtide_contains_all(open(), all.data(), all.size(), answers.data(),
                                             call.native(), failure));
        return std::vector<bool>(answers.begin(), answers.end());
    }

    // A lower bound of the key's age; nothing if it is not in the window.
    std::optional<Age> age(Key key, const Call &call = {}) const {
        std::uint64_t amount = 0;
        std::uint32_t unit = 0;
        detail::Failure failure;
        const int found = failure.checked(ebbtide_age(open(), key.bytes(), key.length(), &amount,
                                                      &unit, call.native(), failure));
        if (found == 0) return std::nullopt;
        return Age{amount, unit == EBBTIDE_ITEMS};
    }

    bool seen_within(Key key, std::chrono::microseconds span, const Call &call = {}) const {
        return within(key, detail::positive(span, "span"), EBBTIDE_MICROSECONDS, call);
    }

    bool seen_within_items(Key key, std::uint64_t items, const Call &call = {}) const {
        return within(key, items, EBBTIDE_ITEMS, call);
    }

    Cardinality distinct(const Call &call = {}) const {
        Cardinality answer{};
        detail::Failure failure;
        failure.checked(ebbtide_distinct(open(), &answer.keys, &answer.standard_error,
                                         &answer.reach, call.native(), failure));
        return answer;
    }

    Cardinality distinct_within(std::chrono::microseconds span, const Call &call = {}) const {
        return distinct_in(detail::positive(span, "span"), EBBTIDE_MICROSECONDS, call);
    }

    Cardinality distinct_within_items(std::uint64_t items, const Call &call = {}) const {
        return distinct_in(items, EBBTIDE_ITEMS, call);
    }

    Estimate estimate(Key key, const Call &call = {}) const {
        double count = 0;
        detail::Failure failure;
        const int more = failure.checked(ebbtide_estimate(open(), key.bytes(), key.length(),
                                                          &count, call.native(), failure));
        return Estimate{count, more == 1};
    }

    // How far a source was read; nothing if it has no position.
    std::optional<std::uint64_t> position(std::uint64_t source) const {
        std::uint64_t position = 0;
        detail::Failure failure;
        const int found = failure.checked(ebbtide_position(open(), source, &position, failure));
        return found == 1 ? std::optional(position) : std::nullopt;
    }

    // The claims that are held, the oldest first.
    std::vector<OpenClaim> claims() const {
        std::vector<ebbtide_open_claim> held;
        for (;;) {
            detail::Failure failure;
            const auto count = static_cast<std::size_t>(
                failure.checked(ebbtide_claims(open(), held.data(), held.size(), failure)));
            const bool is_whole = count <= held.size();
            held.resize(count);
            if (is_whole) break;
        }
        std::vector<OpenClaim> claims;
        claims.reserve(held.size());
        for (const ebbtide_open_claim &claim : held) {
            claims.push_back({claim.hash, claim.token, detail::micros(claim.age_us),
                              detail::micros(claim.remaining_us)});
        }
        return claims;
    }

    std::string digest() const {
        detail::Failure failure;
        return detail::taken(ebbtide_digest(open(), failure), failure);
    }

    // One object of JSON.
    std::string stat() const {
        detail::Failure failure;
        return detail::taken(ebbtide_stat(open(), failure), failure);
    }

    // Closes the handle, with its errors, which the destructor cannot report. Afterwards it is
    // closed, also if this throws, and other calls throw Code::closed. A closed one: nothing.
    void close() {
        detail::Failure failure;
        failure.checked(ebbtide_close(handle_.release(), failure));
    }

    // The handle for functions of ebbtide.h; it stays the owner's. nullptr if closed or moved from.
    ebbtide_filter *native() const noexcept { return handle_.get(); }

protected:
    explicit Handle(ebbtide_filter *handle) noexcept : handle_(handle) {}

    ebbtide_filter *open() const {
        if (handle_ == nullptr) throw Error(Code::closed, "the handle was closed or moved from");
        return native();
    }

private:
    bool within(Key key, std::uint64_t amount, std::uint32_t unit, const Call &call) const {
        detail::Failure failure;
        return failure.checked(ebbtide_seen_within(open(), key.bytes(), key.length(), amount,
                                                   unit, call.native(), failure)) == 1;
    }

    Cardinality distinct_in(std::uint64_t amount, std::uint32_t unit, const Call &call) const {
        Cardinality answer{};
        detail::Failure failure;
        failure.checked(ebbtide_distinct_within(open(), amount, unit, &answer.keys,
                                                &answer.standard_error, &answer.reach,
                                                call.native(), failure));
        return answer;
    }

    struct Close {
        void operator()(ebbtide_filter *handle) const noexcept { ebbtide_close(handle, nullptr); }
    };
    std::unique_ptr<ebbtide_filter, Close> handle_;
};

// A handle for queries, which needs no write permission and changes nothing.
class Reader : public Handle {
public:
    explicit Reader(const std::filesystem::path &path, std::string_view options = {})
        : Handle(opened(path, options)) {}

    // The filter as it was at a moment of its past.
    Reader(const std::filesystem::path &path, const Moment &at, std::string_view options = {})
        : Handle(opened_at(path, at, options)) {}

private:
    static ebbtide_filter *opened(const std::filesystem::path &path, std::string_view options) {
        detail::Failure failure;
        return failure.checked(ebbtide_reader_open(
            detail::path(path).get(), detail::options(options).or_null(), failure));
    }

    static ebbtide_filter *opened_at(const std::filesystem::path &path, const Moment &at,
                                     std::string_view options) {
        detail::Failure failure;
        return failure.checked(ebbtide_reader_open_at(detail::path(path).get(), at.native(),
                                                      detail::options(options).or_null(),
                                                      failure));
    }
};

// What `alter` has done.
struct Altered {
    std::uint64_t lsn;
    std::uint64_t operations;
    std::optional<Time> since;
    std::chrono::microseconds stopped;
    bool is_whole;
};

// What `alter` would take.
struct AlterationPlan {
    std::uint64_t records;
    std::uint64_t first_lsn;
    std::optional<Time> since;
    std::uint64_t memory_before;
    std::uint64_t memory_after;
    bool has_window;
};

// What `remake` has made.
struct Remade {
    std::uint64_t operations;
    std::optional<Time> since;
    bool is_whole;
};

class Batch;

// The answer of Filter::claim. One that is held (`if (claim)`) is released by its destructor,
// unless it was confirmed, detached or moved: so a handler that returns early or throws leaves the
// key free for the next attempt. For a stopped process that waits a second at most: then the claim
// ends with its lease. It must not outlive its filter.
class Claim {
public:
    Claim(Claim &&other) noexcept { *this = std::move(other); }
    Claim &operator=(Claim &&other) noexcept {
        if (this == &other) return *this;
        drop();
        filter_ = std::exchange(other.filter_, nullptr);
        key_ = std::move(other.key_);
        token_ = other.token_;
        until_ = other.until_;
        seen_ = other.seen_;
        return *this;
    }
    ~Claim() { drop(); }

    // Whether the key is the caller's to work on.
    explicit operator bool() const noexcept { return filter_ != nullptr; }
    // Whether the work was done before.
    bool seen() const noexcept { return seen_; }
    // Whether somebody else is working on the key, until when its lease ends if it is not renewed.
    bool in_progress() const noexcept { return until_.has_value(); }
    std::optional<Time> until() const noexcept { return until_; }
    // The number of the claim; 0 if it was never held.
    std::uint64_t token() const noexcept { return token_; }

    // Inserts the key and ends the claim, in one atomic step. After Code::lease_lost the claim is
    // not held any more; after other errors it is.
    void confirm(const Call &call = {}) {
        detail::Failure failure;
        ebbtide_confirm(held(), key_.data(), key_.size(), token_, call.native(), failure);
        ended(failure);
    }

    // Ends the claim without an insert. Returns whether it was still held.
    bool release(const Call &call = {}) {
        if (filter_ == nullptr) return false;
        detail::Failure failure;
        const int found = ebbtide_release(filter_, key_.data(), key_.size(), token_, call.native(),
                                          failure);
        ended(failure);
        return found == 1;
    }

    // Renews the claim, for this span from now on. Returns when the lease ends.
    Time extend(std::chrono::milliseconds lease, const Call &call = {}) {
        std::uint64_t until = 0;
        detail::Failure failure;
        ebbtide_extend(held(), key_.data(), key_.size(), token_, detail::positive(lease, "lease"),
                       &until, call.native(), failure);
        failure.checked(0);
        return detail::time(until);
    }

    // Leaves the claim to whoever has key and token, or to the end of its lease. Returns the token.
    std::uint64_t detach() noexcept {
        filter_ = nullptr;
        return token_;
    }

private:
    friend class Filter;
    friend class Batch;
    Claim(ebbtide_filter *filter, Key key, std::uint64_t token)
        : filter_(filter), key_(static_cast<const char *>(key.bytes()), key.length()),
          token_(token) {}
    Claim(bool seen, std::optional<Time> until) noexcept : until_(until), seen_(seen) {}

    ebbtide_filter *held() const {
        if (filter_ == nullptr) throw Error(Code::lease_lost, "the claim is not held");
        return filter_;
    }

    void ended(const detail::Failure &failure) {
        if (failure.none() || failure.is(Code::lease_lost)) filter_ = nullptr;
        failure.checked(0);
    }

    void drop() noexcept {
        if (filter_ == nullptr) return;
        // If this fails, the claim ends with its lease.
        ebbtide_call call = EBBTIDE_CALL_INIT;
        call.wait_us = 1000000;
        ebbtide_release(filter_, key_.data(), key_.size(), token_, &call, nullptr);
        filter_ = nullptr;
    }

    ebbtide_filter *filter_ = nullptr;
    std::string key_;
    std::uint64_t token_ = 0;
    std::optional<Time> until_;
    bool seen_ = false;
};

// Keys and positions that are written in one atomic step. Made by Filter::batch, and destroyed
// before the filter is closed; what was not committed has no effect.
class Batch {
public:
    // Of the calls of operations, time and weight count.
    void insert(Key key, const Call &call = {}) {
        detail::Failure failure;
        failure.checked(ebbtide_batch_insert(native(), key.bytes(), key.length(), call.native(),
                                             failure));
    }

    Checked check_and_insert(Key key, const Call &call = {}) {
        detail::Failure failure;
        return static_cast<Checked>(failure.checked(ebbtide_batch_check_and_insert(
            native(), key.bytes(), key.length(), call.native(), failure)));
    }

    void set_position(std::uint64_t source, std::uint64_t position) {
        detail::Failure failure;
        failure.checked(ebbtide_batch_set_position(native(), source, position, failure));
    }

    // Adds the insert of a claimed key, and the end of its claim. The claim is the batch's then,
    // and is released if the batch is cleared or destroyed. After Code::argument it is held as
    // before; any other error has released it.
    void confirm(Claim &&claim, const Call &call = {}) {
        detail::Failure failure;
        if (claim.held() != filter_)
            throw Error(Code::argument, "confirm: expected a claim of the batch's filter");
        ebbtide_batch_confirm(native(), claim.key_.data(), claim.key_.size(), claim.token_,
                              call.native(), failure);
        if (!failure.is(Code::argument)) claim.detach();
        failure.checked(0);
    }

    // Writes all of it or nothing; afterwards it is empty, and can be filled again. After
    // Code::conflict and Code::lease_lost clear it and take the same messages again.
    void commit() {
        detail::Failure failure;
        failure.checked(ebbtide_batch_commit(native(), failure));
    }

    void clear() {
        detail::Failure failure;
        failure.checked(ebbtide_batch_clear(native(), failure));
    }

    // The batch for functions of ebbtide.h; it stays the owner's. nullptr if moved from.
    ebbtide_batch *native() const noexcept { return batch_.get(); }

private:
    friend class Filter;
    Batch(ebbtide_batch *batch, ebbtide_filter *filter) noexcept
        : batch_(batch), filter_(filter) {}

    struct Free {
        void operator()(ebbtide_batch *batch) const noexcept { ebbtide_batch_free(batch); }
    };
    std::unique_ptr<ebbtide_batch, Free> batch_;
    ebbtide_filter *filter_;
};

// An open filter, closed by its destructor.
class Filter : public Handle {
public:
    // The filter at this path, created if there is none. Specs and options are those of
    // ebbtide_open; without options they have their defaults.
    Filter(const std::filesystem::path &path, std::string_view spec,
           std::string_view options = {})
        : Handle(opened(&ebbtide_open, path, spec, options)) {}

    // A filter that does not exist yet.
    static Filter create(const std::filesystem::path &path, std::string_view spec,
                         std::string_view options = {}) {
        return Filter(opened(&ebbtide_create, path, spec, options));
    }

    // A filter that exists.
    static Filter open_existing(const std::filesystem::path &path,
                                std::string_view options = {}) {
        detail::Failure failure;
        return Filter(failure.checked(ebbtide_open_existing(
            detail::path(path).get(), detail::options(options).or_null(), failure)));
    }

    // Returns false if the time lies before the window, so that nothing was changed.
    bool insert(Key key, const Call &call = {}) {
        detail::Failure failure;
        return failure.checked(ebbtide_insert(open(), key.bytes(), key.length(), call.native(),
                                              failure)) == 1;
    }

    Checked check_and_insert(Key key, const Call &call = {}) {
        detail::Failure failure;
        return static_cast<Checked>(failure.checked(ebbtide_check_and_insert(
            open(), key.bytes(), key.length(), call.native(), failure)));
    }

    // Returns false if the key is not there, so that nothing was changed.
    bool remove(Key key, const Call &call = {}) {
        detail::Failure failure;
        return failure.checked(ebbtide_remove(open(), key.bytes(), key.length(), call.native(),
                                              failure)) == 1;
    }

    // Keys are a range of anything that a Key is made of. Returns how many were not too late. After
    // an exception the keys before the failing one are inserted.
    template <typename Keys> std::uint64_t insert_all(const Keys &keys, const Call &call = {}) {
        const std::vector<ebbtide_key> all = detail::all(keys);
        detail::Failure failure;
        return static_cast<std::uint64_t>(failure.checked(
            ebbtide_insert_all(open(), all.data(), all.size(), call.native(), failure)));
    }

    // One answer for each key, in their order.
    template <typename Keys>
    std::vector<Checked> check_and_insert_all(const Keys &keys, const Call &call = {}) {
        std::vector<Checked> answers;
        check_and_insert_all(keys, answers, call);
        return answers;
    }

    // The same into answers that are used again. If this throws, the keys before the failing one
    // have their answers and are inserted, and those of the others are Checked::none.
    template <typename Keys>
    void check_and_insert_all(const Keys &keys, std::vector<Checked> &answers,
                              const Call &call = {}) {
        const std::vector<ebbtide_key> all = detail::all(keys);
        answers.assign(all.size(), Checked::none);
        detail::Failure failure;
        failure.checked(ebbtide_check_and_insert_all(
            open(), all.data(), all.size(), reinterpret_cast<std::uint8_t *>(answers.data()),
            call.native(), failure));
    }

    // The call has the settings of all operations of the batch.
    Batch batch(const Call &call = {}) {
        detail::Failure failure;
        ebbtide_filter *const filter = open();
        return Batch(failure.checked(ebbtide_batch_new(filter, call.native(), failure)), filter);
    }

    // Claims a key for work that may fail; of all threads and processes one receives it.
    Claim claim(Key key, std::chrono::milliseconds lease, const Call &call = {}) {
        std::uint64_t token = 0, until = 0;
        detail::Failure failure;
        const int answer = failure.checked(
            ebbtide_claim(open(), key.bytes(), key.length(), detail::positive(lease, "lease"),
                          &token, &until, call.native(), failure));
        if (answer == EBBTIDE_YOURS) return Claim(open(), key, token);
        return Claim(answer == EBBTIDE_SEEN,
                     detail::time_if(answer == EBBTIDE_IN_PROGRESS, until));
    }

    // The claim with this token, from a Claim that was detached here or in another process.
    Claim resume_claim(Key key, std::uint64_t token) { return Claim(open(), key, token); }

    // Ends the claim of a key, whoever holds it. Returns false if there was none.
    bool end_claim(Key key, const Call &call = {}) {
        detail::Failure failure;
        return failure.checked(ebbtide_end_claim(open(), key.bytes(), key.length(),
                                                 call.native(), failure)) == 1;
    }

    // The hash by which the log and `claims` name a key.
    std::uint64_t key_hash(Key key) const {
        std::uint64_t hash = 0;
        detail::Failure failure;
        failure.checked(ebbtide_key_hash(open(), key.bytes(), key.length(), &hash, failure));
        return hash;
    }

    void sync() {
        detail::Failure failure;
        failure.checked(ebbtide_sync(open(), failure));
    }

    // Returns the number of the log record at which the newest snapshot starts.
    std::uint64_t checkpoint() {
        std::uint64_t lsn = 0;
        detail::Failure failure;
        failure.checked(ebbtide_checkpoint(open(), &lsn, failure));
        return lsn;
    }

    void clear() {
        detail::Failure failure;
        failure.checked(ebbtide_clear(open(), failure));
    }

    void backup(const std::filesystem::path &path) const {
        detail::Failure failure;
        failure.checked(ebbtide_backup(open(), detail::path(path).get(), failure));
    }

    // Gives the filter other parameters while it is in use. `forget` allows that keys are forgotten
    // of which the log has no record.
    Altered alter(std::string_view spec, bool forget = false) {
        ebbtide_altered found{};
        found.size = sizeof found;
        detail::Failure failure;
        failure.checked(ebbtide_alter(open(), detail::spec(spec).get(),
                                      forget ? EBBTIDE_FORGET : 0, &found, failure));
        return {found.lsn, found.operations, detail::time_if(found.has_since, found.since_us),
                detail::micros(found.stopped_us), found.is_whole == 1};
    }

private:
    explicit Filter(ebbtide_filter *filter) noexcept : Handle(filter) {}

    static ebbtide_filter *opened(decltype(&ebbtide_open) open, const std::filesystem::path &path,
                                  std::string_view spec, std::string_view options) {
        detail::Failure failure;
        return failure.checked(open(detail::path(path).get(), detail::spec(spec).get(),
                                    detail::options(options).or_null(), failure));
    }
};

// An operation in the log of a filter. Members that its kind does not have are 0 or empty.
struct Operation {
    // A later version may return kinds that are not listed here.
    enum class Kind : std::uint32_t {
        other = EBBTIDE_OPERATION_OTHER,
        insert = EBBTIDE_OPERATION_INSERT,
        remove = EBBTIDE_OPERATION_REMOVE,
        clear = EBBTIDE_OPERATION_CLEAR,
        position = EBBTIDE_OPERATION_POSITION,
        claim = EBBTIDE_OPERATION_CLAIM,
        release = EBBTIDE_OPERATION_RELEASE,
    };

    Kind kind;
    std::uint64_t lsn;
    // As of this LSN its commit has happened: continue after it.
    std::uint64_t commit_lsn;
    std::uint64_t timeline;
    // How many operations of the same commit come after this one.
    std::uint64_t left;
    std::optional<Time> time;
    // Whether the time came with the key, and not from a clock.
    bool is_stream_time;
    std::uint64_t hash;
    std::uint32_t weight;
    std::uint64_t source;
    std::uint64_t position;
    std::uint64_t token;
    std::chrono::microseconds lease;
};

// The operations in the log of a filter, one by one, while others write it.
class History {
public:
    // From the oldest operation that is kept.
    explicit History(const std::filesystem::path &path, bool with_undurable = false)
        : History(path, nullptr, with_undurable) {}

    // From the first operation that had not happened at that moment.
    History(const std::filesystem::path &path, const Moment &after, bool with_undurable = false)
        : History(path, after.native(), with_undurable) {}

    // The next operation; nothing at the present end. Asked again later, it continues.
    std::optional<Operation> read() {
        return next([this](ebbtide_operation *found, detail::Failure &failure) {
            return ebbtide_history_read(native(), found, failure);
        });
    }

    // The same, but waits for an operation to come, at most this long.
    std::optional<Operation> wait(std::chrono::milliseconds timeout) {
        return waited(detail::positive(timeout, "timeout"));
    }

    // The same, as long as it takes.
    Operation wait() {
        for (;;) {
            if (const std::optional<Operation> found = waited(UINT64_MAX)) return *found;
        }
    }

    // The LSN at which reading continues.
    std::uint64_t position() const {
        std::uint64_t lsn = 0;
        detail::Failure failure;
        failure.checked(ebbtide_history_position(native(), &lsn, failure));
        return lsn;
    }

    // for (const ebbtide::Operation &one : history): up to the present end.
    class Iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Operation;
        using difference_type = std::ptrdiff_t;
        using pointer = const Operation *;
        using reference = const Operation &;

        reference operator*() const noexcept { return *found_; }
        pointer operator->() const noexcept { return &*found_; }
        Iterator &operator++() {
            found_ = history_->read();
            return *this;
        }
        void operator++(int) { ++*this; }
        bool operator==(const Iterator &other) const noexcept {
            return found_.has_value() == other.found_.has_value();
        }
        bool operator!=(const Iterator &other) const noexcept { return !(*this == other); }

    private:
        friend class History;
        Iterator() = default;
        explicit Iterator(History *history) : history_(history), found_(history->read()) {}

        History *history_ = nullptr;
        std::optional<Operation> found_;
    };

    Iterator begin() { return Iterator(this); }
    Iterator end() { return Iterator(); }

    // The history for functions of ebbtide.h; it stays the owner's. nullptr if moved from.
    ebbtide_history *native() const noexcept { return history_.get(); }

private:
    History(const std::filesystem::path &path, const ebbtide_moment *after, bool with_undurable) {
        detail::Failure failure;
        history_.reset(failure.checked(
            ebbtide_history_open(detail::path(path).get(), after,
                                 with_undurable ? EBBTIDE_WITH_UNDURABLE : 0, failure)));
    }

    std::optional<Operation> waited(std::uint64_t timeout_ms) {
        return next([this, timeout_ms](ebbtide_operation *found, detail::Failure &failure) {
            return ebbtide_history_wait(native(), timeout_ms, found, failure);
        });
    }

    template <typename Read> std::optional<Operation> next(Read read) {
        ebbtide_operation one{};
        one.size = sizeof one;
        detail::Failure failure;
        if (failure.checked(read(&one, failure)) == 0) return std::nullopt;
        return Operation{static_cast<Operation::Kind>(one.kind),
                         one.lsn,
                         one.commit_lsn,
                         one.timeline,
                         one.left,
                         detail::time_if(one.flags & EBBTIDE_HAS_TIME, one.time_us),
                         (one.flags & EBBTIDE_IS_STREAM_TIME) != 0,
                         one.hash,
                         one.weight,
                         one.source,
                         one.position,
                         one.token,
                         detail::micros(one.lease_us)};
    }

    struct Close {
        void operator()(ebbtide_history *log) const noexcept { ebbtide_history_close(log); }
    };
    std::unique_ptr<ebbtide_history, Close> history_;
};

// Copies a backup, or a filter that no process has open, to a directory that does not exist.
inline void restore(const std::filesystem::path &backup, const std::filesystem::path &path) {
    detail::Failure failure;
    failure.checked(
        ebbtide_restore(detail::path(backup).get(), detail::path(path).get(), failure));
}

// What `restore_at` has made.
struct Restored {
    std::uint64_t next_lsn;
    std::uint64_t inserts;
};

// Makes a filter which is what another one was at a moment of its past.
inline Restored restore_at(const std::filesystem::path &filter, const Moment &at,
                           const std::filesystem::path &path) {
    Restored restored{};
    detail::Failure failure;
    failure.checked(ebbtide_restore_at(detail::path(filter).get(), at.native(),
                                       detail::path(path).get(), &restored.next_lsn,
                                       &restored.inserts, failure));
    return restored;
}

// What a filter will take of memory and disk, as one object of JSON.
inline std::string plan(std::string_view spec, std::string_view options = {}) {
    detail::Failure failure;
    return detail::taken(
        ebbtide_plan(detail::spec(spec).get(), detail::options(options).or_null(), failure),
        failure);
}

// What Filter::alter would take.
inline AlterationPlan plan_alteration(const std::filesystem::path &path, std::string_view spec) {
    ebbtide_alteration_plan found{};
    found.size = sizeof found;
    detail::Failure failure;
    failure.checked(ebbtide_plan_alteration(detail::path(path).get(), detail::spec(spec).get(),
                                            &found, failure));
    return {found.records,       found.first_lsn,
            detail::time_if(found.has_since, found.since_us),
            found.memory_before, found.memory_after,
            found.has_window == 1};
}

// The part of the keys that `remake` takes: those of one of some equal shares by their hash.
struct Share {
    std::uint64_t number = 0;
    std::uint64_t of = 0;  // 0: all keys.
};

// Makes a filter from the logs of others.
inline Remade remake(const std::vector<std::filesystem::path> &filters,
                     const std::filesystem::path &path, std::string_view spec,
                     std::string_view options = {}, Share share = {}) {
    std::vector<detail::Text> texts;
    std::vector<const char *> pointers;
    for (const auto &filter : filters) texts.push_back(detail::path(filter));
    for (const auto &text : texts) pointers.push_back(text.get());
    ebbtide_remade found{};
    found.size = sizeof found;
    detail::Failure failure;
    failure.checked(ebbtide_remake(pointers.data(), pointers.size(), detail::path(path).get(),
                                   detail::spec(spec).get(), detail::options(options).or_null(),
                                   share.number, share.of, &found, failure));
    return {found.operations, detail::time_if(found.has_since, found.since_us),
            found.is_whole == 1};
}

// The number of the share that a key hash belongs to.
inline std::uint64_t share_of(std::uint64_t hash, std::uint64_t shares) {
    std::uint64_t share = 0;
    detail::Failure failure;
    failure.checked(ebbtide_share_of(hash, shares, &share, failure));
    return share;
}

// The version of the library.
inline std::string_view version() noexcept { return ebbtide_version(); }

}  // namespace ebbtide

#endif
