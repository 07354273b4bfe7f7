// Shapes of the problems that kernels solve, as plain values: no CUDA types, no dependence on sim/.
//
// One recurrence covers every family (state S of v_dim x k_dim per value head):
//   S_t = gate_t S_{t-1} + u_t k_t^T,   o_t = S_t q_t,
//   u_t = beta_t (v_t - gate_t S_{t-1} k_t)  with the delta rule (GDN, KDA);  dt_t x_t (Mamba-2);  v_t
//   (lightning).
// Sources: KVBuffer, arXiv 2605.19049; Gated DeltaNet, arXiv 2412.06464, eq. 10.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvsim {

enum class Family : std::uint8_t { kGdn, kKda, kMamba2, kLightning };
inline constexpr int kFamilyCount = 4;

// A form is a way to serve a layer; all forms give the same output.
enum class Form : std::uint8_t { kRecurrent, kBuffered, kDirect, kVerifyStored, kVerifyBuffered };
inline constexpr int kFormCount = 5;

// kSplit keeps the fp32 word as two 16-bit planes: high = (x + 0x8000) >> 16, low = x & 0xffff.
enum class StateFormat : std::uint8_t { kFp32, kBf16, kFp16, kSplit };
inline constexpr int kStateFormatCount = 4;

// How a buffered record keeps u; its key is bf16 as it came, its gate fp32.
enum class RecordFormat : std::uint8_t { kBf16, kFp32U };
inline constexpr int kRecordFormatCount = 2;

// Names as in YAML and CSV files; order as in the enums.
inline constexpr std::array<std::string_view, kFamilyCount> kFamilyNames{"gdn", "kda", "mamba2", "lightning"};
inline constexpr std::array<std::string_view, kFormCount> kFormNames{"recurrent", "buffered", "direct",
                                                                     "verify_stored", "verify_buffered"};
inline constexpr std::array<std::string_view, kStateFormatCount> kStateFormatNames{"fp32", "bf16", "fp16",
                                                                                   "split"};
inline constexpr std::array<std::string_view, kRecordFormatCount> kRecordFormatNames{"bf16", "fp32_u"};

constexpr std::string_view name(Family f) {
    return kFamilyNames[static_cast<std::size_t>(f)];
}
constexpr std::string_view name(Form f) {
    return kFormNames[static_cast<std::size_t>(f)];
}
constexpr std::string_view name(StateFormat f) {
    return kStateFormatNames[static_cast<std::size_t>(f)];
}
constexpr std::string_view name(RecordFormat f) {
    return kRecordFormatNames[static_cast<std::size_t>(f)];
}

// Inverse of name(); empty when no enumerator has that name.
template <class Enum, std::size_t N>
constexpr std::optional<Enum> enum_from_name(const std::array<std::string_view, N>& names,
                                             std::string_view text) {
    for (std::size_t i = 0; i < N; ++i) {
        if (names[i] == text) return static_cast<Enum>(i);
    }
    return std::nullopt;
}

// Bytes of one state element; the split format occupies 4 in memory, of which decode reads 2.
constexpr std::int64_t bytes_per_element(StateFormat f) {
    return f == StateFormat::kFp32 || f == StateFormat::kSplit ? 4 : 2;
}

// One linear-attention layer. Heads are those of one rank.
//   GDN, KDA:   k_heads key heads shared by groups of v_heads / k_heads value heads; state v_dim x k_dim per
//   value head Mamba-2:    v_heads heads of v_dim channels, k_heads groups of B and C with k_dim states
//   lightning:  k_heads == v_heads
struct LinearShape {
    Family family = Family::kGdn;
    int k_heads = 0;
    int v_heads = 0;
    int k_dim = 0;
    int v_dim = 0;
    StateFormat state = StateFormat::kFp32;
    RecordFormat records = RecordFormat::kBf16;

    friend constexpr bool operator==(const LinearShape& a, const LinearShape& b) {
        return a.family == b.family && a.k_heads == b.k_heads && a.v_heads == b.v_heads &&
               a.k_dim == b.k_dim && a.v_dim == b.v_dim && a.state == b.state && a.records == b.records;
    }
};

// What one launch of a form has to do, summed over its sequences (mixed phases are sums too).
struct LinearWork {
    std::int64_t sequences = 0;        // rows of the launch
    std::int64_t new_tokens = 0;       // decode: == sequences; verify: sequences x T
    std::int64_t buffered_tokens = 0;  // sum over rows of the records that are read (fill before the step)
    std::int64_t flushes = 0;          // rows that write their state back (buffered forms)
    std::int64_t flushed_tokens = 0;   // records that these fold into it, the new tokens' included

    friend constexpr bool operator==(const LinearWork& a, const LinearWork& b) {
        return a.sequences == b.sequences && a.new_tokens == b.new_tokens &&
               a.buffered_tokens == b.buffered_tokens && a.flushes == b.flushes &&
               a.flushed_tokens == b.flushed_tokens;
    }
};

}  // namespace kvsim
