#include <ebbtide.hpp>
#include <iostream>
#include <string>

// Prints the lines of the input that were not there in the last ten minutes, over all runs.
int main() try {
    ebbtide::Filter seen("seen", "fingerprint window=10m fpr=0.001");
    for (std::string line; std::getline(std::cin, line);) {
        if (seen.check_and_insert(line) == ebbtide::Checked::fresh) std::cout << line << '\n';
    }
    seen.close();
} catch (const ebbtide::Error &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
