// Errors that a user can mend, with the place where to mend them.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace kvsim {

// Where a mistake stands. Lines and columns count from one; zero means unknown.
struct Place {
    std::string file;
    int line = 0;
    int column = 0;
};

// One mistake: `file:line:col: path: message`.
struct Mistake {
    Place place;
    std::string path;     // dotted key path such as linear.buffer_length; may be empty (traces)
    std::string message;  // "expected ..., got ..."
};

std::string format_mistake(const Mistake& mistake);

// Bad input: all mistakes that could be found, at least one. main prints what() and exits with 2.
class ConfigError : public std::runtime_error {
  public:
    explicit ConfigError(std::vector<Mistake> mistakes);
    explicit ConfigError(Mistake mistake) : ConfigError(std::vector<Mistake>{std::move(mistake)}) {}

    const std::vector<Mistake>& mistakes() const { return mistakes_; }

  private:
    std::vector<Mistake> mistakes_;
};

// Throws a ConfigError with one mistake.
[[noreturn]] void throw_mistake(Place place, std::string path, std::string message);

}  // namespace kvsim
