#include "sim/workload/stamp.hpp"

#include <chrono>
#include <limits>

namespace kvsim {
namespace {

constexpr std::int64_t kPsPerSecond = 1'000'000'000'000;
constexpr int kFractionDigits = 12;

// Reads a text from the front; every function returns false, or nothing, when the text does not go on as
// asked.
class Scanner {
  public:
    explicit Scanner(std::string_view text) : rest_(text) {}

    bool done() const { return rest_.empty(); }
    bool accept(char c) {
        if (rest_.empty() || rest_.front() != c) return false;
        rest_.remove_prefix(1);
        return true;
    }
    std::optional<int> digit() {
        if (rest_.empty() || rest_.front() < '0' || rest_.front() > '9') return std::nullopt;
        const int value = rest_.front() - '0';
        rest_.remove_prefix(1);
        return value;
    }
    // Exactly `count` digits, a number of at most `max`.
    bool number(int count, int max, int& value) {
        value = 0;
        for (int i = 0; i < count; ++i) {
            const std::optional<int> d = digit();
            if (!d) return false;
            value = 10 * value + *d;
        }
        return value <= max;
    }

  private:
    std::string_view rest_;
};

bool scan_date(Scanner& scanner, std::int64_t& days) {
    int year = 0;
    int month = 0;
    int day = 0;
    if (!scanner.number(4, 9999, year) || !scanner.accept('-') || !scanner.number(2, 12, month) ||
        !scanner.accept('-') || !scanner.number(2, 31, day)) {
        return false;
    }
    const std::chrono::year_month_day date{std::chrono::year(year),
                                           std::chrono::month(static_cast<unsigned>(month)),
                                           std::chrono::day(static_cast<unsigned>(day))};
    days = std::chrono::sys_days(date).time_since_epoch().count();
    return date.ok();
}

bool scan_time(Scanner& scanner, std::int64_t& seconds) {
    int hour = 0;
    int minute = 0;
    int second = 0;
    if (!scanner.number(2, 23, hour) || !scanner.accept(':') || !scanner.number(2, 59, minute) ||
        !scanner.accept(':') || !scanner.number(2, 59, second)) {
        return false;
    }
    seconds = (hour * 60 + minute) * 60 + second;
    return true;
}

// The digits after the point, as picoseconds.
bool scan_fraction(Scanner& scanner, std::int64_t& picoseconds) {
    int digits = 0;
    picoseconds = 0;
    while (const std::optional<int> d = scanner.digit()) {
        if (++digits > kFractionDigits) return false;
        picoseconds = 10 * picoseconds + *d;
    }
    for (int i = digits; i < kFractionDigits; ++i) picoseconds *= 10;
    return digits > 0;
}

bool scan_offset(Scanner& scanner, bool ahead, std::int64_t& seconds) {
    int hours = 0;
    int minutes = 0;
    if (!scanner.number(2, 23, hours) || !scanner.accept(':') || !scanner.number(2, 59, minutes))
        return false;
    seconds = (hours * 60 + minutes) * 60 * (ahead ? 1 : -1);
    return true;
}

}  // namespace

std::optional<Stamp> parse_stamp(std::string_view text) {
    Scanner scanner(text);
    std::int64_t days = 0;
    std::int64_t seconds = 0;
    std::int64_t offset = 0;
    Stamp stamp;
    if (!scan_date(scanner, days) || (!scanner.accept(' ') && !scanner.accept('T')) ||
        !scan_time(scanner, seconds)) {
        return std::nullopt;
    }
    if (scanner.accept('.') && !scan_fraction(scanner, stamp.picoseconds)) return std::nullopt;
    if (!scanner.accept('Z')) {
        const bool ahead = scanner.accept('+');
        if ((ahead || scanner.accept('-')) && !scan_offset(scanner, ahead, offset)) return std::nullopt;
    }
    if (!scanner.done()) return std::nullopt;
    stamp.seconds = days * 86'400 + seconds - offset;
    return stamp;
}

std::optional<Stamp> parse_elapsed(std::string_view text, StampUnit unit) {
    constexpr int kMostDigits = 12;
    Scanner scanner(text);
    std::int64_t whole = 0;
    int digits = 0;
    while (const std::optional<int> d = scanner.digit()) {
        if (++digits > kMostDigits) return std::nullopt;
        whole = 10 * whole + *d;
    }
    if (digits == 0) return std::nullopt;
    std::int64_t fraction = 0;  // in 10^-12 of the unit
    if (scanner.accept('.') && !scan_fraction(scanner, fraction)) return std::nullopt;
    if (!scanner.done()) return std::nullopt;
    if (unit == StampUnit::kSeconds) return Stamp{whole, fraction};
    if (fraction % 1000 != 0) return std::nullopt;
    return Stamp{whole / 1000, whole % 1000 * (kPsPerSecond / 1000) + fraction / 1000};
}

std::optional<Time> difference(const Stamp& later, const Stamp& earlier) {
    const std::int64_t seconds =
        later.seconds - earlier.seconds;  // both within the years 0 .. 9999: no overflow
    constexpr std::int64_t kMaxSeconds = std::numeric_limits<std::int64_t>::max() / kPsPerSecond - 1;
    if (seconds > kMaxSeconds || seconds < -kMaxSeconds) return std::nullopt;
    return Time(seconds * kPsPerSecond + (later.picoseconds - earlier.picoseconds));
}

}  // namespace kvsim
