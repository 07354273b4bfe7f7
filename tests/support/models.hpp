// Published model sizes for tests (Hugging Face config.json of each), independent of configs/.
#pragma once

#include "sim/model/model.hpp"

namespace kvsim::testing {

inline ModelSpec qwen35_4b() {
    ModelSpec m;
    m.name = "qwen3.5-4b";
    m.linear_layers = 24;
    m.full_layers = 8;
    m.hidden = 2560;
    m.vocab = 248320;
    m.tied_embeddings = true;
    m.linear = {Family::kGdn, 16, 32, 128, 128, 4};
    m.attention = {16, 4, 256};
    m.ffn.intermediate = 9216;
    return m;
}

inline ModelSpec qwen35_27b() {
    ModelSpec m;
    m.name = "qwen3.5-27b";
    m.linear_layers = 48;
    m.full_layers = 16;
    m.hidden = 5120;
    m.vocab = 248320;
    m.linear = {Family::kGdn, 16, 48, 128, 128, 4};
    m.attention = {24, 4, 256};
    m.ffn.intermediate = 17408;
    return m;
}

inline ModelSpec qwen35_35b_a3b() {
    ModelSpec m;
    m.name = "qwen3.5-35b-a3b";
    m.linear_layers = 30;
    m.full_layers = 10;
    m.hidden = 2048;
    m.vocab = 248320;
    m.linear = {Family::kGdn, 16, 32, 128, 128, 4};
    m.attention = {16, 2, 256};
    m.ffn = {FfnKind::kMoe, 0, 256, 8, 512, 512};
    return m;
}

}  // namespace kvsim::testing
