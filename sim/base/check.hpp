// KVSIM_CHECK: invariants of our own, always on. A failure is a fault of the program, never of the user's input.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace kvsim {

// A broken invariant. The message names file, line and the condition.
class InvariantError : public std::logic_error {
  public:
    using std::logic_error::logic_error;
};

[[noreturn]] inline void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
    throw InvariantError(fmt::format("{}:{}: broken invariant `{}`: {}", file, line, condition, detail));
}

}  // namespace kvsim

// KVSIM_CHECK(condition, format, arguments...)
#define KVSIM_CHECK(condition, ...)                                                                 \
    do {                                                                                            \
        if (!(condition)) [[unlikely]]                                                              \
            ::kvsim::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__));      \
    } while (false)
