// Decode kernels against the double-precision reference, one launch at a time.
#include <algorithm>
#include <set>
#include <vector>

#include "tests/gpu/launch_check.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

struct Heads {
    int k, v;
};
constexpr Heads kHeads[] = {{2, 4}, {1, 3}, {4, 16}, {16, 48}};

TEST_CASE("recurrent decode gives the reference's outputs and states", "[decode]") {
    std::uint64_t seed = 100;
    for (const StateFormat state : kTestedStates) {
        for (const Heads h : kHeads) {
            for (const int capacity : {0, 16}) {
                LaunchCase c{gdn_shape(h.k, h.v, state), capacity, {Form::kRecurrent, 1, {}}};
                c.launch.rows.assign(5, live_row());
                c.launch.rows[2].slot = -1;
                check_case(c, ++seed);
            }
        }
    }
}

// All 16 starts make every way in which old and new records can lie across the end of the ring.
TEST_CASE("buffered decode at every fill and start of a ring of 16, with and without a flush", "[decode]") {
    constexpr int kCapacity = 16;
    std::uint64_t seed = 200;
    for_each_format([&](StateFormat state, RecordFormat records) {
        LaunchCase all{gdn_shape(1, 2, state, records), kCapacity, {}};
        for (int start = 0; start < kCapacity; ++start) {
            LaunchCase c{gdn_shape(1, 2, state, records), kCapacity, {}};
            for (int fill = 0; fill < kCapacity; ++fill) {
                for (const bool flush : {false, true}) c.launch.rows.push_back(live_row(start, fill, flush));
            }
            check_case(c, ++seed);
            all.launch.rows.insert(all.launch.rows.end(), c.launch.rows.begin(), c.launch.rows.end());
        }
        check_case(all, ++seed);
    });
}

// Fills on both sides of every multiple of 16, the records of one tensor core instruction.
TEST_CASE("buffered decode with rings of other lengths", "[decode]") {
    std::uint64_t seed = 300;
    for (const int capacity : {1, 2, 7, 24, 33, 128}) {
        std::set<int> fills;
        for (const int fill :
             {0, 1, 2, 5, 15, 16, 17, 23, 31, 32, 33, 47, 48, 63, 64, 65, 100, 111, 112, 113})
            fills.insert(std::min(fill, capacity - 1));
        fills.insert({std::max(0, capacity - 2), capacity - 1});
        for_each_format([&](StateFormat state, RecordFormat records) {
            for (const Heads h : {Heads{2, 4}, Heads{1, 3}}) {
                LaunchCase c{gdn_shape(h.k, h.v, state, records), capacity, {}};
                Noise noise(++seed);
                for (const int fill : fills) {
                    for (const bool flush : {false, true})
                        c.launch.rows.push_back(live_row(noise.pick(0, capacity - 1), fill, flush));
                }
                check_case(c, seed);
                // Once more in a large launch, which may run by another kernel.
                const std::vector<Row> rows = c.launch.rows;
                for (int copy = 1; copy < 8; ++copy)
                    c.launch.rows.insert(c.launch.rows.end(), rows.begin(), rows.end());
                c.compared = static_cast<int>(rows.size()) + 1;  // spread over the copies
                check_case(c, seed);
            }
        });
    }
}

TEST_CASE("buffered decode with grouped heads and a padding row", "[decode]") {
    std::uint64_t seed = 400;
    for_each_format([&](StateFormat state, RecordFormat records) {
        for (const Heads h : kHeads) {
            LaunchCase c{gdn_shape(h.k, h.v, state, records), 16, {}};
            c.launch.rows = {live_row(3, 0), live_row(0, 9, true), live_row(12, 7), live_row(7, 15, true)};
            c.launch.rows.push_back({-1, 5, 3, true});
            c.launch.rows.push_back({-1, 0, 0, false});
            check_case(c, ++seed);
        }
    });
}

// From one row to 9,600 heads: kernels and their schedules depend on how much work there is.
TEST_CASE("decode of small and large batches with mixed fills and flags", "[decode]") {
    std::uint64_t seed = 500;
    struct Size {
        Heads heads;
        int rows, compared;
    };
    for (const Size s : {Size{{1, 1}, 1, 1}, Size{{2, 4}, 33, 33}, Size{{8, 32}, 20, 20},
                         Size{{1, 4}, 300, 300}, Size{{8, 32}, 320, 24}}) {
        for (const StateFormat state : kTestedStates) {
            for (const Form form : {Form::kRecurrent, Form::kBuffered}) {
                Noise noise(++seed);
                LaunchCase c{
                    gdn_shape(s.heads.k, s.heads.v, state), 16, {form, 1, mixed_rows(s.rows, 16, 1, noise)}};
                c.compared = s.compared;
                check_case(c, seed);
            }
        }
    }
}

TEST_CASE("decode at extreme gates", "[decode]") {
    std::uint64_t seed = 600;
    for_each_format([&](StateFormat state, RecordFormat records) {
        for (const Form form : {Form::kRecurrent, Form::kBuffered}) {
            Noise noise(++seed);
            LaunchCase c{gdn_shape(2, 4, state, records), 16, {form, 1, mixed_rows(24, 16, 1, noise)}};
            c.gates = Gates::kExtreme;
            check_case(c, seed);
        }
    });
}

}  // namespace
}  // namespace kvsim
