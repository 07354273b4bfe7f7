// Verification kernels against the double-precision reference, one launch at a time.
#include <algorithm>
#include <set>
#include <vector>

#include "tests/gpu/launch_check.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// Stored states are whole words or bf16; the split format is one of the buffered forms.
constexpr StateFormat kStoredStates[] = {StateFormat::kFp32, StateFormat::kBf16};

TEST_CASE("verification with stored states gives every token's output and state", "[verify]") {
    std::uint64_t seed = 700;
    for (const StateFormat state : kStoredStates) {
        for (int tokens = 1; tokens <= kMaxTokens; ++tokens) {
            for (const auto& [k, v] : {std::pair{2, 4}, std::pair{1, 3}}) {
                for (const int capacity : {0, 16}) {
                    LaunchCase c{gdn_shape(k, v, state), capacity, {Form::kVerifyStored, tokens, {}}};
                    c.launch.rows.assign(5, live_row());
                    c.launch.rows[1].slot = -1;
                    check_case(c, ++seed);
                }
            }
        }
        for (const auto& [k, v] : {std::pair{4, 16}, std::pair{16, 48}}) {
            LaunchCase c{gdn_shape(k, v, state), 0, {Form::kVerifyStored, 5, {live_row(), live_row()}}};
            check_case(c, ++seed);
        }
    }
}

TEST_CASE("buffered verification of 1 to 9 tokens, at fills up to the last that fits", "[verify]") {
    std::uint64_t seed = 800;
    for (const int capacity : {16, 33}) {
        for (int tokens = 1; tokens <= kMaxTokens; ++tokens) {
            const int most = capacity - tokens;
            for_each_format([&](StateFormat state, RecordFormat records) {
                LaunchCase c{gdn_shape(1, 2, state, records), capacity, {Form::kVerifyBuffered, tokens, {}}};
                for (const int fill : std::set{0, 1, most / 2, most - 1, most}) {
                    // Across the end of the ring: nothing, the new tokens, the first of them alone, old
                    // records.
                    for (const int start :
                         std::set{0, capacity - fill - 1, (2 * capacity - fill - tokens) % capacity,
                                  capacity - 1}) {
                        for (const bool flush : {false, true})
                            c.launch.rows.push_back(live_row(start, fill, flush));
                    }
                }
                check_case(c, ++seed);
            });
        }
    }
}

TEST_CASE("buffered verification with grouped heads, other rings and padding rows", "[verify]") {
    std::uint64_t seed = 900;
    struct Size {
        int k, v, capacity, tokens, rows;
    };
    for (const Size s : {Size{2, 4, 9, 9, 5}, Size{1, 3, 24, 5, 7}, Size{4, 16, 16, 3, 6},
                         Size{16, 48, 16, 8, 3}, Size{1, 3, 128, 9, 12}}) {
        for_each_format([&](StateFormat state, RecordFormat records) {
            Noise noise(++seed);
            LaunchCase c{
                gdn_shape(s.k, s.v, state, records), s.capacity, {Form::kVerifyBuffered, s.tokens, {}}};
            c.launch.rows = mixed_rows(s.rows, s.capacity, s.tokens, noise);
            c.launch.rows.push_back({-1, 0, 0, true});
            check_case(c, seed);
        });
    }
}

TEST_CASE("verification of large batches", "[verify]") {
    std::uint64_t seed = 1000;
    for (const StateFormat state : kTestedStates) {
        for (const int tokens : {1, 5}) {
            Noise noise(++seed);
            LaunchCase c{gdn_shape(1, 4, state), 16, {Form::kVerifyBuffered, tokens, {}}};
            c.launch.rows = mixed_rows(300, 16, tokens, noise);
            c.compared = 100;
            check_case(c, seed);
            c.shape = gdn_shape(8, 32, state);
            c.compared = 16;
            check_case(c, ++seed);
        }
    }
    for (const StateFormat state : kStoredStates) {
        Noise noise(++seed);
        LaunchCase c{gdn_shape(4, 16, state), 0, {Form::kVerifyStored, 4, mixed_rows(150, 16, 4, noise)}};
        c.compared = 16;
        check_case(c, seed);
    }
}

TEST_CASE("verification at extreme gates", "[verify]") {
    std::uint64_t seed = 1100;
    for_each_format([&](StateFormat state, RecordFormat records) {
        for (const int tokens : {3, 9}) {
            for (const Form form : {Form::kVerifyStored, Form::kVerifyBuffered}) {
                if (form == Form::kVerifyStored && state == StateFormat::kSplit) continue;
                Noise noise(++seed);
                LaunchCase c{
                    gdn_shape(2, 4, state, records), 24, {form, tokens, mixed_rows(16, 24, tokens, noise)}};
                c.gates = Gates::kExtreme;
                check_case(c, seed);
            }
        }
    });
}

}  // namespace
}  // namespace kvsim
