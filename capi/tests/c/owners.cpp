// C++ over the C interface: owners that release what they hold, exceptions, threads.
#include "ebbtide.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

struct Failure : std::runtime_error {
    int code;
    Failure(int code, const char *message) : std::runtime_error(message), code(code) {}
};

// Throws the error, if there is one.
class Errors {
public:
    Errors() = default;
    Errors(const Errors &) = delete;
    Errors &operator=(const Errors &) = delete;
    ~Errors() { ebbtide_error_free(error); }
    ebbtide_error **place() { return &error; }
    void check() const {
        if (error == nullptr) return;
        throw Failure(ebbtide_error_code(error), ebbtide_error_message(error));
    }

private:
    ebbtide_error *error = nullptr;
};

class Filter {
public:
    Filter(const std::string &path, const std::string &spec) {
        Errors errors;
        filter.reset(ebbtide_open(path.c_str(), spec.c_str(), nullptr, errors.place()));
        errors.check();
    }

    bool is_new(std::string_view key) {
        Errors errors;
        int answer = ebbtide_check_and_insert(filter.get(), key.data(), key.size(), nullptr,
                                              errors.place());
        errors.check();
        return answer == EBBTIDE_NEW;
    }

    std::string digest() {
        Errors errors;
        std::unique_ptr<char, void (*)(char *)> text(ebbtide_digest(filter.get(), errors.place()),
                                                     ebbtide_string_free);
        errors.check();
        return text.get();
    }

private:
    struct Close {
        void operator()(ebbtide_filter *open) const { ebbtide_close(open, nullptr); }
    };
    std::unique_ptr<ebbtide_filter, Close> filter;
};

void expect(bool condition, const char *what) {
    if (condition) return;
    std::fprintf(stderr, "not so: %s\n", what);
    std::exit(1);
}

}  // namespace

int main(int count, char **arguments) {
    expect(count == 2, "one argument");
    const std::string path = std::string(arguments[1]) + "/owners";
    std::string before;
    {
        Filter seen(path, "fingerprint last=100k fpr=0.000001");
        std::atomic<int> news{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back([&] {
                for (int key = 0; key < 500; key++) news += seen.is_new(std::to_string(key));
            });
        }
        for (auto &thread : threads) thread.join();
        expect(news == 500, "each key is new to one thread");
        before = seen.digest();
    }
    Filter again(path, "fingerprint last=100k fpr=0.000001");
    expect(!again.is_new("7"), "the key outlives the handle");
    expect(before.size() == 32 && again.digest() != before, "the digest shows the insert");
    try {
        Filter other(path, "bloom capacity=5");
        expect(false, "a filter of another kind is refused");
    } catch (const Failure &failure) {
        expect(failure.code == EBBTIDE_MISMATCH, "the code of the error");
        expect(std::string(failure.what()).find(path) != std::string::npos, "its message");
    }
    std::puts("passed");
}
