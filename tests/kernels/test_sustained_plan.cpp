#include <algorithm>
#include <fstream>

#include "kernels/calibrate/sustained_plan.hpp"
#include "sim/model/parameters.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/models.hpp"

using namespace kvsim;
using namespace kvsim::calibrate;

namespace {

const std::string kGrid = KVSIM_SOURCE_DIR "/configs/calibration/sustained.yaml";

// The matrices of one period of the layers, in the order of a forward pass.
std::vector<std::pair<int, int>> projections(const ModelSpec& model) {
    std::vector<std::pair<int, int>> result;
    const auto append = [&](const std::vector<WeightMatrix>& matrices) {
        for (const WeightMatrix& w : matrices) {
            const bool product = w.name.ends_with("_proj") || w.name == "up" || w.name == "down" ||
                                 w.name == "in_proj_qkvz" || w.name == "in_proj_ba";
            if (product) result.emplace_back(w.rows, w.cols);
        }
    };
    for (const char layer : std::string("LLLF")) {
        const LayerKind& kind = model.kinds[layer == 'L' ? 0 : 1];
        if (kind.linear) append(weights(*kind.linear, model.hidden));
        if (kind.attention) append(weights(*kind.attention, model.hidden));
        if (kind.ffn) append(weights(*kind.ffn, model.hidden));
    }
    return result;
}

std::vector<std::pair<int, int>> sizes(const SustainedLoad& load) {
    std::vector<std::pair<int, int>> result;
    for (const Product& p : load.products) result.emplace_back(p.n, p.k);
    return result;
}

std::string write_grid(const std::string& text) {
    const std::string file = KVSIM_BINARY_DIR "/test_sustained_plan.yaml";
    std::ofstream(file) << text;
    return file;
}

ClockStamp stamp(std::uint64_t cycles, std::uint64_t nanoseconds) {
    return {cycles, nanoseconds};
}

}  // namespace

TEST_CASE("chains hold the projections of the published models") {
    const SustainedPlan plan = load_sustained_plan(kGrid);
    int checked = 0;
    for (const ModelSpec& model : {kvsim::testing::qwen35_4b(), kvsim::testing::qwen35_27b()}) {
        for (const SustainedLoad& load : plan.loads) {
            if (load.name != model.name) continue;
            CHECK(sizes(load) == projections(model));
            ++checked;
        }
    }
    CHECK(checked == 2 * (3 + 1 + 1));  // three token counts, one after memory, one of zeros
}

TEST_CASE("every burst is also a load") {
    const SustainedPlan plan = load_sustained_plan(kGrid);
    for (const Product& burst : plan.bursts) {
        CAPTURE(burst.m, burst.n, burst.k);
        CHECK(std::count_if(plan.loads.begin(), plan.loads.end(), [&](const SustainedLoad& load) {
                  return load.products.size() == 6 && load.products.front() == burst &&
                         load.products.back() == burst;
              }) >= 1);
    }
}

TEST_CASE("a chain becomes a load for each token count, then those after memory, then those of zeros") {
    const SustainedPlan plan = load_sustained_plan(write_grid(R"(schema: kvsim/sustained/1
idle: 200 ms
memory: 500 ms
busy: 1 s
slice: 1 ms
chains:
  - name: two
    tokens: [16, 32]
    after_memory: [32]
    zeros: [16]
    layers:
      - {count: 2, products: [[8, 4], [4, 8]]}
      - {products: [[2, 4]]}
)"));
    REQUIRE(plan.loads.size() == 4);
    CHECK(sizes(plan.loads[0]) == std::vector<std::pair<int, int>>{{8, 4}, {4, 8}, {8, 4}, {4, 8}, {2, 4}});
    const std::array m{16, 32, 32, 16};
    for (std::size_t i = 0; i < m.size(); ++i) {
        CAPTURE(i);
        CHECK(plan.loads[i].products.back().m == m[i]);
        CHECK(plan.loads[i].memory == time_from_us(i == 2 ? 500e3 : 0.0));
        CHECK(plan.loads[i].data == (i == 3 ? OperandData::kZeros : OperandData::kNormal));
        CHECK(plan.loads[i].idle == time_from_us(200e3));
        CHECK(plan.loads[i].busy == time_from_us(1e6));
    }
    CHECK(plan.slice == time_from_us(1e3));
}

TEST_CASE("a product with a size too many is refused with its place") {
    const std::string file = write_grid(R"(schema: kvsim/sustained/1
idle: 1 ms
memory: 1 ms
busy: 1 ms
slice: 1 ms
chains:
  - {name: a, tokens: [1], layers: [{products: [[8, 4, 2]]}]}
)");
    CHECK_THROWS_WITH(load_sustained_plan(file),
                      ContainsSubstring(file + ":7:") && ContainsSubstring("expected 2 sizes, got 3"));
}

TEST_CASE("slices end with the product that reaches their work, and go round") {
    // 2 m n k: 16 and 64 FLOPs.
    const std::vector<Product> round{{2, 2, 2}, {2, 4, 4}};
    const std::vector<Slice> slices = cut_slices(round, Flops(70), Flops(200));
    // 16 + 64 = 80 | 16 + 64 = 80 | 16 + 64 = 80: the third brings 160 over 200.
    REQUIRE(slices.size() == 3);
    for (std::size_t i = 0; i < slices.size(); ++i) {
        CHECK(slices[i].first == 2 * i);
        CHECK(slices[i].count == 2);
        CHECK(slices[i].flops == Flops(80));
    }
    // 16 | 64 | 16 | 64: every product reaches one FLOP.
    const std::vector<Slice> single = cut_slices(round, Flops(1), Flops(160));
    REQUIRE(single.size() == 4);
    CHECK(single[2].first == 2);
    CHECK(single[2].flops == Flops(16));
    CHECK(single[3].flops == Flops(64));
}

TEST_CASE("the clock is the median over the multiprocessors that both readings saw") {
    // 1980 cycles in 1000 ns are 1980 MHz.
    const std::vector<ClockStamp> begin{stamp(100, 1000), stamp(0, 1000), stamp(7, 1000), stamp(0, 0)};
    const std::vector<ClockStamp> end{stamp(2080, 2000), stamp(1500, 2000), stamp(1007, 2000),
                                      stamp(9, 2000)};
    CHECK(sm_mhz(begin, end) == 1500.0);
    CHECK_FALSE(sm_mhz(std::vector{stamp(1, 0)}, std::vector{stamp(2, 5)}).has_value());
}
