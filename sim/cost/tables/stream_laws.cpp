#include "sim/cost/tables/stream_laws.hpp"

namespace kvsim {

namespace {

double chunks_of(const LinearPrefillWork& w) {
    return std::ceil(static_cast<double>(w.longest) / kPrefillChunk);
}

double state_total(const LinearPrefillWork& w) {
    return static_cast<double>(w.sequences * state_bytes(w.shape));
}

// Bytes that the stages of the Triton form read and write, per token. Per value head: k or k-derived vectors
// 7 times, v-derived ones 7 times (bf16: k k^T, w and u, scan, output), the solved triangle of a chunk twice,
// and a bf16 state per chunk written and read; per key head: l2norm of q and k.
double staged_token_bytes(const LinearShape& s) {
    const double k = s.k_dim;
    const double v = s.v_dim;
    constexpr double kChunk = kPrefillChunk;
    return s.v_heads * (14.0 * (k + v) + 4.0 * kChunk + 4.0 * k * v / kChunk) + s.k_heads * 8.0 * k;
}

}  // namespace

LawTime ConvPrefillLaw::time(const ConvWork& w, const Gpu& gpu) const {
    constexpr double kBlockTokens = 8.0;
    constexpr double kBlockChannels = 256.0;
    const auto channels = static_cast<double>(w.channels);
    const auto sequences = static_cast<double>(w.sequences);
    const auto tokens = static_cast<double>(w.tokens);
    const double length = tokens / sequences;
    const auto bytes = static_cast<double>(conv_bytes(w));
    const double memory = cached_transfer_us(
        bytes, resident_share(w.rotation, bytes, 0.0, l2_share * gpu.l2_bytes), dram_gb_per_s, l2_over_dram);
    const double blocks = sequences * std::ceil(length / kBlockTokens) * std::ceil(channels / kBlockChannels);
    const double latency = floor_us + token_us * std::min(length, kBlockTokens);
    const double running = blocks / gpu.sms * block_us;
    return law_time(latency + soft_max(running, memory, serial), latency, memory, running);
}

LawTime FusedChunkLaw::time(const LinearPrefillWork& w, const Gpu& gpu) const {
    const double waves = std::ceil(static_cast<double>(w.sequences) * w.shape.v_heads / gpu.sms);
    const double chunks = waves * chunk_us * chunks_of(w);
    const double latency = floor_us + waves * block_us;
    return law_time(latency + chunks, latency, 0.0, chunks);
}

Demand FusedChunkLaw::demand(const LinearPrefillWork& w) {
    const ChunkPrefillTraffic t = chunk_prefill_traffic(w.shape, w.sequences, w.new_tokens);
    return {0.0, static_cast<double>(t.flops), MatrixFormat::kBf16};
}

LawTime StagedChunkLaw::time(const LinearPrefillWork& w, const Gpu& gpu) const {
    constexpr double kScanColumns = 32.0;  // of V per block
    const double blocks =
        static_cast<double>(w.sequences) * w.shape.v_heads * std::ceil(w.shape.v_dim / kScanColumns);
    const double scan = chunk_us * chunks_of(w) * std::max(1.0, blocks / (blocks_in_flight * gpu.sms));
    const double bytes = static_cast<double>(w.new_tokens) * staged_token_bytes(w.shape);
    const double memory = cached_transfer_us(bytes, resident_share(bytes, l2_share * gpu.l2_bytes),
                                             dram_gb_per_s, l2_over_dram);
    const double first =
        token_us * std::min(static_cast<double>(w.longest), static_cast<double>(kPrefillChunk));
    const double latency = floor_us + first + transfer_us(state_total(w), state_gb_per_s);
    return law_time(latency + soft_max(scan, memory, serial), std::max(latency, scan), memory, 0.0);
}

LawTime AllReduceLaw::time(const AllReduceWork& w, const Gpu&) const {
    const double others = w.ranks - 1.0;
    const double one = transfer_us(others * w.bytes, one_step_gb_per_s);
    const double two = two_step_us + transfer_us(2.0 * others / w.ranks * w.bytes, two_step_gb_per_s);
    const double latency = floor_us + rank_us * w.ranks;
    const double transfer = std::min(one, two);
    return law_time(latency + transfer, latency, transfer, 0.0);
}

}  // namespace kvsim
