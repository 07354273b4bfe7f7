#include "kernels/calibrate/sustained_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/traffic_gemm.hpp"
#include "sim/base/check.hpp"
#include "sim/base/percentile.hpp"
#include "sim/config/yaml.hpp"

namespace kvsim::calibrate {
namespace {

constexpr IntRange kSize{.min = 1, .max = 1 << 20};
// Sets of weights that the products of a burst rotate over when they are repeated: published tables of
// products were timed with as many.
constexpr int kSetsOfWeights = 6;

std::vector<int> sizes(const YamlCursor& list) {
    std::vector<int> values;
    if (!list.present()) return values;
    for (const YamlCursor& item : list.items(1)) values.push_back(item.small_integer(kSize, 1));
    return values;
}

// [[n, k], ...] or [[m, n, k], ...].
std::vector<std::vector<int>> size_lists(const YamlCursor& list, std::size_t numbers) {
    std::vector<std::vector<int>> result;
    for (const YamlCursor& item : list.items(1)) {
        const std::vector<int> values = sizes(item);
        if (values.size() == numbers) {
            result.push_back(values);
        } else {
            item.mistake(fmt::format("expected {} sizes, got {}", numbers, values.size()));
        }
    }
    return result;
}

struct Periods {
    Time idle, memory, busy;
};

// The products of one round with one row per product; m is not set.
std::vector<Product> read_round(const YamlCursor& layers) {
    std::vector<Product> round;
    for (const YamlCursor& layer : layers.items(1)) {
        const int count = layer.find("count").small_integer({.min = 1, .max = 1024}, 1);
        const std::vector<std::vector<int>> products = size_lists(layer.at("products"), 2);
        for (int i = 0; i < count; ++i) {
            for (const std::vector<int>& p : products) round.push_back({0, p[0], p[1]});
        }
    }
    return round;
}

void append_chain(const YamlCursor& entry, const Periods& periods, std::vector<SustainedLoad>& loads) {
    SustainedLoad load;
    load.name = entry.at("name").string();
    load.products = read_round(entry.at("layers"));
    load.idle = periods.idle;
    load.busy = periods.busy;
    const auto append = [&](const std::vector<int>& tokens, OperandData data, Time memory) {
        for (const int m : tokens) {
            for (Product& p : load.products) p.m = m;
            load.data = data;
            load.memory = memory;
            loads.push_back(load);
        }
    };
    append(sizes(entry.at("tokens")), OperandData::kNormal, Time(0));
    append(sizes(entry.find("after_memory")), OperandData::kNormal, periods.memory);
    append(sizes(entry.find("zeros")), OperandData::kZeros, Time(0));
}

void append_bursts(const YamlCursor& bursts, Time idle, SustainedPlan& plan) {
    plan.burst_idle = bursts.at("idle").time(Sign::kPositive);
    plan.burst_calls = bursts.at("calls").small_integer({.min = 1, .max = 1000}, 1);
    const Time busy = bursts.at("busy").time(Sign::kPositive);
    for (const std::vector<int>& p : size_lists(bursts.at("products"), 3)) {
        const Product product{p[0], p[1], p[2]};
        plan.bursts.push_back(product);
        plan.loads.push_back({fmt::format("{}x{}", product.n, product.k),
                              std::vector<Product>(kSetsOfWeights, product), OperandData::kNormal, idle,
                              Time(0), busy});
    }
}

}  // namespace

Flops Product::flops() const {
    return Flops(gemm_traffic(m, n, k).flops);
}

SustainedPlan load_sustained_plan(const std::string& file) {
    YamlReader reader;
    const YamlCursor root = reader.open(file, "sustained");
    SustainedPlan plan;
    if (root.present()) {
        plan.slice = root.at("slice").time(Sign::kPositive);
        const Periods periods{root.at("idle").time(Sign::kPositive), root.at("memory").time(Sign::kPositive),
                              root.at("busy").time(Sign::kPositive)};
        for (const YamlCursor& chain : root.at("chains").items(1)) append_chain(chain, periods, plan.loads);
        const YamlCursor bursts = root.find("bursts");
        if (bursts.present()) append_bursts(bursts, periods.idle, plan);
    }
    reader.finish();
    return plan;
}

std::vector<Slice> cut_slices(std::span<const Product> round, Flops least, Flops total) {
    KVSIM_CHECK(!round.empty() && least > Flops(0), "{} products in slices of {} FLOPs", round.size(),
                least.value());
    std::vector<Slice> slices;
    Flops done;
    std::size_t next = 0;
    while (done < total) {
        Slice slice{next, 0, {}};
        while (slice.flops < least) {
            slice.flops += round[next++ % round.size()].flops();
            ++slice.count;
        }
        done += slice.flops;
        slices.push_back(slice);
    }
    return slices;
}

std::optional<double> sm_mhz(std::span<const ClockStamp> begin, std::span<const ClockStamp> end) {
    KVSIM_CHECK(begin.size() == end.size(), "stamps of {} and {} multiprocessors", begin.size(), end.size());
    std::vector<double> mhz;
    for (std::size_t sm = 0; sm < begin.size(); ++sm) {
        if (begin[sm].nanoseconds == 0 || end[sm].nanoseconds <= begin[sm].nanoseconds) continue;
        mhz.push_back(1e3 * static_cast<double>(end[sm].cycles - begin[sm].cycles) /
                      static_cast<double>(end[sm].nanoseconds - begin[sm].nanoseconds));
    }
    if (mhz.empty()) return std::nullopt;
    std::sort(mhz.begin(), mhz.end());
    return percentile(static_cast<std::int64_t>(mhz.size()), 0.5,
                      [&](std::int64_t rank) { return mhz[static_cast<std::size_t>(rank)]; });
}

}  // namespace kvsim::calibrate
