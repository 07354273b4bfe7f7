// An operator of a step: a node of the layer graph, with all that prices it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/cost/step_shape.hpp"
#include "sim/cost/tables/works.hpp"

namespace kvsim {

enum class Stream : std::uint8_t { kMain, kSecond };

// ---- what prices an operator ----

struct ElementWise {  // its bytes
    bool operator==(const ElementWise&) const = default;
};

struct LinearDecode {  // a decode or verify kernel of linear attention
    LinearShape shape;
    Form form = Form::kRecurrent;
    LinearWork work;

    bool operator==(const LinearDecode&) const = default;
};

struct Roofline {  // its bytes, FLOPs and launches, where there is no table
    MatrixFormat format = MatrixFormat::kBf16;

    bool operator==(const Roofline&) const = default;
};

struct AllReduce {
    Bytes message;
    int ranks = 1;

    bool operator==(const AllReduce&) const = default;
};

struct AllToAll {
    Bytes sent;  // over the links, by each rank
    int ranks = 1;

    bool operator==(const AllToAll&) const = default;
};

struct ConvUpdate : ConvWork {
    bool operator==(const ConvUpdate&) const = default;
};
struct ConvPrefill : ConvWork {
    bool operator==(const ConvPrefill&) const = default;
};

// The routed experts of a layer, with what their bytes follow from.
struct ExpertsWork : MoeWork {
    std::int64_t expert_bytes = 0;    // weights of one
    double held_share = 1.0;          // of the experts, on this rank
    std::optional<double> power_law;  // of their popularity
    int expert_ranks = 1;

    bool operator==(const ExpertsWork&) const = default;
};

using Pricing =
    std::variant<ElementWise, GemmWork, ExpertsWork, AttentionDecodeWork, AttentionPrefillWork, LinearDecode,
                 LinearPrefillWork, ConvUpdate, ConvPrefill, Roofline, AllReduce, AllToAll>;

// Estimates of one family err together, those of different ones do not.
enum class CostFamily : std::uint8_t {
    kGemm,
    kMoe,
    kAttention,
    kLinear,
    kPrefill,
    kConv,
    kElementWise,
    kAllReduce,
    kAllToAll,
    kHost
};
inline constexpr int kCostFamilyCount = 10;
inline constexpr std::array<std::string_view, kCostFamilyCount> kCostFamilyNames{
    "gemm", "moe",          "attention",  "linear",     "prefill",
    "conv", "element_wise", "all_reduce", "all_to_all", "host"};

// Which numbers of a step an operator depends on.
enum class Driver : std::uint8_t {
    kTokens,     // how many there are, and whether some are a prompt's
    kLogits,     // rows of logits
    kLinear,     // rows, fills, flushes and prompts of linear attention
    kAttention,  // rows, contexts and prompts of full attention
    kEnd         // rows that are verified, states that are copied
};

// ---- the node ----

struct Operator {
    std::string_view name;
    Stream stream = Stream::kMain;
    Driver driver = Driver::kTokens;
    std::int64_t launches = 1;  // nodes of the CUDA graph
    ByteLedger bytes{};
    std::int64_t flops = 0;
    Pricing pricing;
    std::vector<std::size_t> after;  // operators of the same layer, by index, that must have ended

    Operator& own(Owner owner, std::int64_t n) {
        bytes[static_cast<std::size_t>(owner)] += Bytes(n);
        return *this;
    }
    std::int64_t total_bytes() const {
        std::int64_t sum = 0;
        for (const Bytes b : bytes) sum += b.value();
        return sum;
    }
};

// Operators of one layer (or of an end of the step), each after those that it waits for.
using OperatorList = std::vector<Operator>;

}  // namespace kvsim
