// The share of one rank: how engines cut a model over GPUs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/model/model.hpp"

namespace kvsim {

// How tokens reach experts on other ranks, and their outputs come back.
enum class ExpertExchange : std::uint8_t {
    kAllReduce,  // every rank has all tokens; outputs are summed
    kAllToAll    // tokens are sent to the ranks of their experts
};
inline constexpr std::array<std::string_view, 2> kExpertExchangeNames{"all_reduce", "all_to_all"};

// Ranks over which the parts of a model are spread, as SGLang and vLLM do it:
//   mixers       over tp / attention_dp ranks: query, value and key heads are divided; KV heads and the one
//                group of a Mamba-2 layer are held by every rank that needs them
//   FFN          dense and shared experts by width over tp ranks
//   experts      over ep groups of ranks, by width over the tp / ep ranks of a group
//   vocabulary   padded to a multiple of 64, then over tp ranks (embedding and head)
// With an all-to-all between the experts' ranks (DeepEP) each rank works on tokens of its own: it holds the
// shared experts whole, and every rank is a group of experts (SGLang sets ep to tp there).
// Every rank holds whole: norms, routers, latent projections (Nemotron, MLA, KDA), MTP projection.
struct Parallelism {
    int tp = 1;            // tensor-parallel ranks
    int ep = 1;            // expert-parallel groups; divides tp
    int attention_dp = 1;  // data-parallel groups of the mixers; divides tp
    ExpertExchange experts = ExpertExchange::kAllReduce;

    bool all_to_all() const { return experts == ExpertExchange::kAllToAll && ep > 1; }

    bool operator==(const Parallelism&) const = default;
};

// The model as one rank holds it: same layers, hidden and expert count, its share of heads and widths. With
// one rank the model itself. Throws ConfigError that names every size that cannot be divided.
ModelSpec rank_model(const ModelSpec& model, const Parallelism& parallelism);

}  // namespace kvsim
