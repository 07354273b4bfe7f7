// The split state word: exact inversion, and what its high plane reads as.
#include "kernels/split_word.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/reference/rounding.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool is_nan(std::uint32_t bits) {
    return (bits & 0x7fffffffu) > 0x7f800000u;
}
float high_plane(std::uint32_t bits) {
    return std::bit_cast<float>(decode_word(split_word(bits).high));
}
std::uint32_t bits_of(float x) {
    return std::bit_cast<std::uint32_t>(x);
}

static_assert(merge_word(split_word(0x3f80ffffu)) == 0x3f80ffffu);

TEST_CASE("every word but a NaN comes back: all upper halves with lower halves around every carry") {
    std::mt19937 random(1);
    for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
        std::array<std::uint32_t, 12> lows{0,      1,      2,      0x7ffe, 0x7fff, 0x8000,
                                           0x8001, 0x8002, 0xfffe, 0xffff, 0x5555, 0};
        lows.back() = random() & 0xffffu;
        for (const std::uint32_t low : lows) {
            const std::uint32_t x = upper << 16 | low;
            const std::uint32_t back = merge_word(split_word(x));
            if (back != (is_nan(x) ? 0x7fc00000u : x)) FAIL("word " << std::hex << x << " gave " << back);
        }
    }
    // All lower halves, at zero, one, the largest finite word and infinity, both signs.
    for (const std::uint32_t upper : {0x0000u, 0x3f80u, 0x7f7fu, 0x8000u, 0xbf80u, 0xff7fu}) {
        for (std::uint32_t low = 0; low < 0x10000u; ++low) {
            const std::uint32_t x = upper << 16 | low;
            if (merge_word(split_word(x)) != x) FAIL("word " << std::hex << x);
        }
    }
}

TEST_CASE("the high plane is the nearest bf16, ties away from zero") {
    std::mt19937 random(2);
    for (int i = 0; i < 200000; ++i) {
        const std::uint32_t x = random() & 0xff7fffffu;  // finite, at most half of the largest exponent
        const double value = std::bit_cast<float>(x), high = high_plane(x);
        const double below = std::bit_cast<float>(x & 0xffff0000u);
        const double above = std::bit_cast<float>((x & 0xffff0000u) + 0x10000u);
        REQUIRE((high == below || high == above));
        REQUIRE(std::abs(high - value) <= std::abs(above - below) / 2);
        // Away from ties this is the conversion of the hardware.
        if ((x & 0xffffu) != 0x8000u) REQUIRE(high == reference::round_to_bf16(value));
    }
    CHECK(high_plane(0x3f808000u) == std::bit_cast<float>(0x3f810000u));
    CHECK(high_plane(0xbf808000u) == std::bit_cast<float>(0xbf810000u));
    CHECK(reference::round_to_bf16(std::bit_cast<float>(0x3f808000u)) == 1.0);  // to even
}

TEST_CASE("special words") {
    CHECK(high_plane(bits_of(0.0f)) == 0.0f);
    CHECK(std::signbit(high_plane(bits_of(-0.0f))));
    CHECK(high_plane(bits_of(kInfinity)) == kInfinity);
    CHECK(high_plane(bits_of(-kInfinity)) == -kInfinity);
    // The smallest denormal rounds to zero, the largest to the smallest normal number.
    CHECK(high_plane(0x00000001u) == 0.0f);
    CHECK(high_plane(0x007fffffu) == std::numeric_limits<float>::min());
    // Above the largest bf16 the high plane is infinite; the word is kept.
    const float largest = std::numeric_limits<float>::max();
    CHECK(high_plane(bits_of(largest)) == kInfinity);
    CHECK(merge_word(split_word(bits_of(largest))) == bits_of(largest));
    // Every NaN still reads as one: a GPU's, a CPU's, the smallest and the largest payloads.
    for (const std::uint32_t nan : {0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0xffc00000u, 0x7f800001u,
                                    0xff800001u, 0x7fff8000u, 0xffff8000u}) {
        CAPTURE(nan);
        CHECK(std::isnan(high_plane(nan)));
        CHECK(is_nan(merge_word(split_word(nan))));
    }
}

}  // namespace
}  // namespace kvsim
