#include "sim/cost/tables/attention_law.hpp"

namespace kvsim {

namespace {

constexpr double kKeyBlock = 128.0;
constexpr double kDecodeRows = 64.0;   // query heads of a group that share a tile
constexpr double kPrefillRows = 64.0;  // queries of a tile
constexpr double kWidth = 128.0;       // head dimensions that tile times are given for
constexpr double kFullEnough = 0.8;    // of the SMs: with more tiles the library does not split
constexpr double kMaxSplits = 128.0;

}  // namespace

LawTime AttentionDecodeLaw::time(const AttentionDecodeWork& w, const Gpu& gpu) const {
    const auto sequences = static_cast<double>(w.sequences);
    const auto context = static_cast<double>(w.context_sum);
    const double blocks = std::ceil(context / sequences / kKeyBlock);  // of a mean sequence
    const double longest = std::ceil(static_cast<double>(w.context_max) / kKeyBlock);
    const double group = static_cast<double>(w.shape.q_heads) / w.shape.kv_heads;
    const double tiles = sequences * w.shape.kv_heads * std::ceil(group / kDecodeRows);
    const bool grouped = group > 1.0;
    double splits = 1.0;
    if (tiles < kFullEnough * gpu.sms && (gpu.wide_tiles || grouped)) {
        splits = std::min({std::max(1.0, std::floor(gpu.sms / tiles)), longest, kMaxSplits});
    }
    const double waves = std::ceil(tiles * splits / gpu.sms);
    const double width = w.shape.head_dim / kWidth;
    const double chain =
        block_us * width * std::max(waves * std::ceil(blocks / splits), std::ceil(longest / splits));

    const auto bytes = static_cast<double>(traffic_of(w).total());
    const double resident = resident_share(w.rotation, bytes, 0.0, l2_share * gpu.l2_bytes);
    const double memory = cached_transfer_us(bytes, resident, dram_gb_per_s, l2_over_dram);

    double latency =
        floor_us + sequence_us * sequences + cold_us * (1.0 - resident) + tile_us * width * (waves - 1.0);
    if (splits > 1.0) latency += kernel_us;
    if (!gpu.wide_tiles && grouped && w.sequences > 1 && w.shape.kv_heads > 1) latency += kernel_us;
    return law_time(latency + soft_max(memory, chain, serial), std::max(latency, chain), memory, 0.0);
}

Demand AttentionDecodeLaw::demand(const AttentionDecodeWork& w) {
    const AttentionTraffic t = traffic_of(w);
    return {w.rotation == kColdL2 ? static_cast<double>(t.kv_read) : 0.0, static_cast<double>(t.flops),
            MatrixFormat::kBf16};
}

std::array<double, 5> AttentionDecodeLaw::axes(const AttentionDecodeWork& w) {
    const auto sequences = static_cast<double>(w.sequences);
    return {sequences, static_cast<double>(w.context_sum) / sequences, static_cast<double>(w.shape.q_heads),
            static_cast<double>(w.shape.kv_heads), static_cast<double>(w.shape.head_dim)};
}

LawTime AttentionPrefillLaw::time(const AttentionPrefillWork& w, const Gpu& gpu) const {
    const auto sequences = static_cast<double>(w.sequences);
    const auto tokens = static_cast<double>(w.new_tokens);
    const auto keys = static_cast<double>(w.new_tokens + w.cached_tokens);
    const double tiles = sequences * w.shape.q_heads * std::ceil(tokens / sequences / kPrefillRows);
    // A query's mean keys, and half a block that its tile computes in vain on the diagonal.
    const double blocks =
        tiles * (static_cast<double>(w.query_key_pairs) / tokens + 0.5 * kKeyBlock) / kKeyBlock;
    const double pairs = kPrefillRows * kKeyBlock;  // of a block
    const double block_us =
        pairs * (4.0 * w.shape.head_dim / (gpu.peak_flops_bf16 / gpu.sms * peak_share) + softmax_ns * 1e-6);
    const double width = w.shape.head_dim / kWidth;
    const double all = (blocks * block_us + tiles * tile_us * width) / gpu.sms;
    const double longest =
        (keys / sequences + kKeyBlock) / kKeyBlock * (lone_block_us + lone_width_us * width);
    const std::int64_t stored = w.new_tokens * kv_token_bytes(w.shape);
    const double memory = transfer_us(static_cast<double>(traffic_of(w).total() + stored), gb_per_s);
    return law_time(floor_us + memory + soft_max(all, longest, serial), std::max(floor_us, longest), memory,
                    all);
}

Demand AttentionPrefillLaw::demand(const AttentionPrefillWork& w) {
    return {0.0, static_cast<double>(traffic_of(w).flops), MatrixFormat::kBf16};
}

std::array<double, 6> AttentionPrefillLaw::axes(const AttentionPrefillWork& w) {
    const auto sequences = static_cast<double>(w.sequences);
    return {sequences,
            static_cast<double>(w.new_tokens) / sequences,
            static_cast<double>(w.cached_tokens) / sequences,
            static_cast<double>(w.shape.q_heads),
            static_cast<double>(w.shape.kv_heads),
            static_cast<double>(w.shape.head_dim)};
}

}  // namespace kvsim
