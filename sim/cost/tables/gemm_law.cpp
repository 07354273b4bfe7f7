#include "sim/cost/tables/gemm_law.hpp"

#include <limits>
#include <span>

namespace kvsim {

namespace {

struct Tile {
    double rows, columns;
};
// wgmma starts at 64 rows and reaches its rate with 256 columns; kernels for mma.sync are smaller.
constexpr std::array<Tile, 7> kWideTiles{
    {{64, 64}, {64, 128}, {64, 256}, {128, 64}, {128, 128}, {128, 256}, {256, 128}}};
constexpr std::array<Tile, 6> kNarrowTiles{{{32, 64}, {64, 32}, {64, 64}, {64, 128}, {128, 64}, {128, 128}}};
constexpr std::array<Tile, 3> kScaledTiles{{{64, 64}, {64, 128}, {128, 128}}};  // up to 64 rows, 128, more
constexpr std::array kSplits{1.0, 2.0, 4.0, 8.0, 16.0, 32.0};
constexpr double kStep = 64.0;  // of K

std::span<const Tile> tiles_of(const GemmWork& w, const Gpu& gpu) {
    if (!gpu.wide_tiles) return kNarrowTiles;
    if (w.format == MatrixFormat::kBf16) return kWideTiles;
    return std::span(kScaledTiles).subspan(w.m <= 64 ? 0 : w.m <= 128 ? 1 : 2, 1);
}

std::span<const double> splits_of(const GemmWork& w) {
    return std::span(kSplits).first(w.format == MatrixFormat::kBf16 ? kSplits.size() : 1);
}

constexpr double kOutputBytes = 2.0;

double weight_bytes(const GemmWork& w) {
    return static_cast<double>(w.n) * static_cast<double>(w.k) * bytes_per_element(w.format);
}

double activation_bytes(const GemmWork& w) {
    const auto m = static_cast<double>(w.m);
    return m *
           (static_cast<double>(w.k) * bytes_per_element(w.format) + static_cast<double>(w.n) * kOutputBytes);
}

}  // namespace

double GemmLaw::tiles_us(const GemmWork& w, const Gpu& gpu) const {
    const auto m = static_cast<double>(w.m);
    const auto n = static_cast<double>(w.n);
    const auto k = static_cast<double>(w.k);
    const double sm_flops = gpu.peak_flops(w.format) / gpu.sms * peak_share;
    const double partial_us =
        transfer_us(8.0 * m * n, dram_gb_per_s * l2_over_dram);  // fp32, written and read
    double best = std::numeric_limits<double>::infinity();
    for (const Tile& t : tiles_of(w, gpu)) {
        const double compute = 2.0 * t.rows * t.columns * kStep / sm_flops;
        const double load = transfer_us(
            (std::min(t.rows, m) + t.columns) * kStep * bytes_per_element(w.format), sm_load_gb_per_s);
        const double step = std::max(compute, load);
        const double edge =
            prologue_us + transfer_us(std::min(t.rows, m) * t.columns * kOutputBytes, sm_store_gb_per_s);
        const double blocks = std::ceil(m / t.rows) * std::ceil(n / t.columns);
        // No split takes less than all steps spread evenly, and its reduction; margin for rounding.
        const double least = blocks / gpu.sms * (k / kStep) * step * (1.0 - 1e-9);
        for (const double split : splits_of(w)) {
            if (least + (split > 1.0 ? split_us + split * partial_us : 0.0) >= best) break;
            const double waves = std::ceil(blocks * split / gpu.sms);
            double us = waves * (std::ceil(k / kStep / split) * step + edge);
            if (split > 1.0) us += split_us + split * partial_us;
            best = std::min(best, us);
        }
    }
    const double x = best / throttle_us;
    return best * (1.0 + (1.0 / sustained_share - 1.0) * x * x / (1.0 + x * x));
}

LawTime GemmLaw::time(const GemmWork& w, const Gpu& gpu) const {
    const double cache = l2_share * gpu.l2_bytes;
    const double weights = weight_bytes(w);
    const double activations = activation_bytes(w);
    // Activations come from the launch before and go to the next: they are in the L2 as far as they fit.
    const double memory =
        cached_transfer_us(weights, resident_share(w.rotation, weights, activations, cache), dram_gb_per_s,
                           l2_over_dram) +
        cached_transfer_us(activations, resident_share(activations, cache), dram_gb_per_s, l2_over_dram);
    const double tiles = tiles_us(w, gpu);
    double latency = floor_us;
    if (w.format != MatrixFormat::kBf16) {
        latency += transfer_us(3.0 * static_cast<double>(w.m) * static_cast<double>(w.k),
                               dram_gb_per_s * l2_over_dram);
    }
    return law_time(latency + soft_max(tiles, memory, serial), latency, memory, tiles);
}

Demand GemmLaw::demand(const GemmWork& w) {
    return {w.rotation == kColdL2 ? weight_bytes(w) : 0.0,
            2.0 * static_cast<double>(w.m) * static_cast<double>(w.n) * static_cast<double>(w.k), w.format};
}

}  // namespace kvsim
