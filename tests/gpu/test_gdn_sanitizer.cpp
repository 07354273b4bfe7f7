// Small launches of every kernel, for compute-sanitizer, under which the other tests would take hours.
#include "tests/gpu/launch_check.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

// 1 key head and 3 value heads: arrays of odd lengths end where an access of two elements would go on.
LaunchCase small(Form form, int tokens, StateFormat state, RecordFormat records) {
    LaunchCase c{gdn_shape(1, 3, state, records), 19, {form, tokens, {}}};
    c.launch.rows = {live_row(0, 0), live_row(14, 10, true), {-1, 0, 0, false}};
    return c;
}

TEST_CASE("small launches of every form", "[sanitizer]") {
    for (const StateFormat state : kTestedStates) {
        check_case(small(Form::kRecurrent, 1, state, RecordFormat::kBf16), 1201);
        for (const RecordFormat records : kTestedRecords) {
            check_case(small(Form::kBuffered, 1, state, records), 1202);
            for (const int tokens : {1, 5, 9})
                check_case(small(Form::kVerifyBuffered, tokens, state, records), 1203);
        }
        if (state != StateFormat::kSplit)
            check_case(small(Form::kVerifyStored, 3, state, RecordFormat::kBf16), 1204);
    }
}

// Enough heads that every multiprocessor works on several: of a ring of 16 by short blocks, of one of 48 by
// pipelines, which go around.
TEST_CASE("launches that fill a device", "[sanitizer]") {
    for (const StateFormat state : kTestedStates) {
        for (const auto& [form, tokens] :
             {std::pair{Form::kBuffered, 1}, std::pair{Form::kVerifyBuffered, 5}}) {
            for (const int capacity : {16, 48}) {
                LaunchCase c{gdn_shape(4, 16, state), capacity, {form, tokens, {}}};
                for (int i = 0; i < 60; ++i)
                    c.launch.rows.push_back(
                        live_row(5 * i % capacity, 3 * i % (capacity + 1 - tokens), i % 4 == 0));
                c.compared = 4;
                check_case(c, 1205);
            }
        }
    }
}

}  // namespace
}  // namespace kvsim
