#include "sim/cost/tables/moe_law.hpp"

#include <limits>

#include "sim/base/check.hpp"

namespace kvsim {

namespace {

constexpr std::array kTileRows{16.0, 32.0, 64.0, 128.0};
constexpr std::array kTileColumns{64.0, 128.0};
constexpr double kStep = 64.0;  // of K
constexpr double kActivationBytes = 2.0;

// Matrices between hidden and intermediate width, without the one that leads back.
double up_matrices(const MoeWork& w) {
    return w.gated ? 2.0 : 1.0;
}

double weight_bytes(const MoeWork& w) {
    return w.distinct_experts * (1.0 + up_matrices(w)) * w.shape.hidden * w.shape.intermediate *
           bytes_per_element(w.format);
}

// Tiles of `rows` over all experts. Rows spread by chance fill half of an expert's last tile.
double row_tiles(const MoeWork& w, double rows) {
    if (w.even) return w.distinct_experts * std::ceil(w.rows / w.distinct_experts / rows);
    return std::max(w.distinct_experts, w.rows / rows + 0.5 * w.distinct_experts);
}

double activation_bytes(const MoeWork& w) {
    const double hidden = w.shape.hidden;
    const double inner = w.shape.intermediate;
    const double up = up_matrices(w);
    const auto tokens = static_cast<double>(w.tokens);
    const double routed = tokens * w.shape.top_k;
    const double own = w.rows * (hidden + inner);  // into both products
    // Out of the first product, through the activation, out of the second, into the sum.
    const double all = routed * (up * inner + (1.0 + up) * inner + 2.0 * hidden);
    return kActivationBytes * (own + all + tokens * hidden);
}

}  // namespace

double MoeLaw::tiles_us(const MoeWork& w, const Gpu& gpu) const {
    const double sm_flops = gpu.peak_flops(w.format) / gpu.sms * peak_share;
    const double hidden = w.shape.hidden;
    const double inner = w.shape.intermediate;
    const double up = up_matrices(w) * inner;
    double best = std::numeric_limits<double>::infinity();
    for (const double rows : kTileRows) {
        const double tiles = row_tiles(w, rows);
        for (const double columns : kTileColumns) {
            const double step = std::max(
                2.0 * rows * columns * kStep / sm_flops,
                transfer_us((rows + columns) * kStep * bytes_per_element(w.format), sm_load_gb_per_s));
            const auto product = [&](double n, double k) {
                return std::ceil(tiles * std::ceil(n / columns) / gpu.sms) *
                       (std::ceil(k / kStep) * step + prologue_us);
            };
            best = std::min(best, product(up, hidden) + product(hidden, inner));
        }
    }
    return best;
}

LawTime MoeLaw::time(const MoeWork& w, const Gpu& gpu) const {
    const double weights = weight_bytes(w);
    const double resident = resident_share(w.rotation, weights, 0.0, l2_share * gpu.l2_bytes);
    // What is in the L2 costs no more than its way into the SMs, which the tiles count.
    const double memory = transfer_us(weights * (1.0 - resident), dram_gb_per_s);
    const double activations = transfer_us(activation_bytes(w), activation_gb_per_s);
    const double routed = static_cast<double>(w.tokens) * w.shape.top_k;
    double latency = floor_us + align_us * std::min(1.0, routed / w.shape.experts);
    if (w.rows < routed) latency += remote_us;
    const double tiles = tiles_us(w, gpu);
    return law_time(latency + activations + soft_max(tiles, memory, serial), latency, memory + activations,
                    tiles);
}

Demand MoeLaw::demand(const MoeWork& w) {
    return {w.rotation == kColdL2 ? weight_bytes(w) : 0.0,
            2.0 * w.rows * (1.0 + up_matrices(w)) * w.shape.hidden * w.shape.intermediate, w.format};
}

double expected_distinct_experts(const MoeShape& shape, std::int64_t tokens, double alpha) {
    KVSIM_CHECK(shape.experts > 0 && shape.top_k > 0 && alpha >= 0.0, "{} experts, top {}, exponent {}",
                shape.experts, shape.top_k, alpha);
    const double experts = shape.experts;
    // Inverse of the cumulative density on [1, E].
    const auto popularity = [&](int i) {
        const double u = (i + 0.5) / experts;
        const double e = 1.0 - alpha;
        if (std::abs(e) < 1e-9) return std::pow(experts, u);
        return std::pow(1.0 + u * (std::pow(experts, e) - 1.0), 1.0 / e);
    };
    double sum = 0.0;
    for (int i = 0; i < shape.experts; ++i) sum += popularity(i);
    double touched = 0.0;
    for (int i = 0; i < shape.experts; ++i) {
        const double p = std::min(1.0, shape.top_k * popularity(i) / sum);
        touched += 1.0 - std::pow(1.0 - p, static_cast<double>(tokens));
    }
    return touched;
}

}  // namespace kvsim
