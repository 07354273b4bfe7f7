// Published model sizes for tests (Hugging Face config.json of each), independent of configs/.
#pragma once

#include "sim/model/model.hpp"

namespace kvsim::testing {

// Three GDN layers to one of gated full attention, `periods` times, each with `ffn`; an MTP layer of the
// latter kind. State 128 x 128 per value head, convolution of 4, KV heads of 256.
inline ModelSpec qwen(std::string name, int hidden, int periods, LinearMixer linear, GqaMixer attention,
                      const Ffn& ffn) {
    ModelSpec m;
    m.name = std::move(name);
    m.hidden = hidden;
    m.vocab = 248320;
    m.kinds = {{'L', linear, {}, ffn}, {'F', {}, attention, ffn}};
    for (int i = 0; i < periods; ++i) m.pattern += "LLLF";
    m.mtp_pattern.assign(1, 'F');
    return m;
}
inline LinearMixer gdn(int k_heads, int v_heads) {
    return {"linear", Family::kGdn, k_heads, v_heads, 128, 128, 4};
}
inline GqaMixer gated_attention(int q_heads, int kv_heads) {
    return {"attention", q_heads, kv_heads, 256, true, true, true};
}

inline ModelSpec qwen35_4b() {
    ModelSpec m = qwen("qwen3.5-4b", 2560, 8, gdn(16, 32), gated_attention(16, 4), DenseFfn{"ffn", 9216});
    m.tied_embeddings = true;
    return m;
}

inline ModelSpec qwen35_27b() {
    return qwen("qwen3.5-27b", 5120, 16, gdn(16, 48), gated_attention(24, 4), DenseFfn{"ffn", 17408});
}

inline ModelSpec qwen35_35b_a3b() {
    MoeFfn moe{"ffn", 256, 8, 512, 512};
    moe.shared_gate = true;
    return qwen("qwen3.5-35b-a3b", 2048, 10, gdn(16, 32), gated_attention(16, 2), moe);
}

}  // namespace kvsim::testing
