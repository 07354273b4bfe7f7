#include "sim/model/rank.hpp"

#include <fmt/format.h>

#include <string>

#include "sim/base/error.hpp"

namespace kvsim {

namespace {

constexpr int kVocabularyPad = 64;  // SGLang and vLLM `DEFAULT_VOCAB_PADDING_SIZE`

// Divides sizes and collects those that cannot be.
class Divider {
  public:
    explicit Divider(const ModelSpec& model) : place_{"model " + model.name} {}

    int divide(int size, int ranks, const std::string& part, const char* what) {
        if (size % ranks != 0) {
            refuse(part, fmt::format("{} {} cannot be divided over {} ranks", size, what, ranks));
            return size;
        }
        return size / ranks;
    }

    // Heads that several ranks hold alike when there are fewer heads than ranks.
    int divide_or_repeat(int heads, int ranks, const std::string& part, const char* what) {
        if (heads >= ranks) return divide(heads, ranks, part, what);
        if (ranks % heads != 0)
            refuse(part, fmt::format("{} {} cannot be shared evenly by {} ranks", heads, what, ranks));
        return 1;
    }

    void refuse(const std::string& part, std::string message) {
        for (const Mistake& m : mistakes_) {
            if (m.path == part && m.message == message) return;  // kinds share parts
        }
        mistakes_.push_back({place_, part, std::move(message)});
    }

    void finish() {
        if (!mistakes_.empty()) throw ConfigError(std::move(mistakes_));
    }

  private:
    Place place_;
    std::vector<Mistake> mistakes_;
};

LinearMixer share(LinearMixer m, int ranks, Divider& divider) {
    m.v_heads = divider.divide(m.v_heads, ranks, m.name, "value heads");
    // A single group of B and C serves the heads of every rank.
    const bool one_group = m.family == Family::kMamba2 && m.k_heads == 1;
    if (!one_group) m.k_heads = divider.divide(m.k_heads, ranks, m.name, "key heads or groups");
    return m;
}

GqaMixer share(GqaMixer m, int ranks, Divider& divider) {
    m.q_heads = divider.divide(m.q_heads, ranks, m.name, "query heads");
    m.kv_heads = divider.divide_or_repeat(m.kv_heads, ranks, m.name, "KV heads");
    return m;
}

MlaMixer share(MlaMixer m, int ranks, Divider& divider) {
    m.q_heads = divider.divide(m.q_heads, ranks, m.name, "query heads");
    return m;
}

DenseFfn share(DenseFfn f, const Parallelism& p, Divider& divider) {
    f.width = divider.divide(f.width, p.tp, f.name, "channels of width");
    return f;
}

MoeFfn share(MoeFfn f, const Parallelism& p, Divider& divider) {
    divider.divide(f.experts, p.ep, f.name, "experts");
    f.expert_ranks = p.ep;
    f.expert_width = divider.divide(f.expert_width, p.tp / p.ep, f.name, "channels of expert_width");
    if (!p.all_to_all())
        f.shared_width = divider.divide(f.shared_width, p.tp, f.name, "channels of shared_width");
    return f;
}

void check(const Parallelism& p, Divider& divider) {
    for (const auto& [name, ranks] :
         {std::pair{"tp", p.tp}, {"ep", p.ep}, {"attention_dp", p.attention_dp}}) {
        if (ranks < 1) divider.refuse(name, fmt::format("expected at least 1, got {}", ranks));
    }
    divider.finish();
    for (const auto& [name, ranks] : {std::pair{"ep", p.ep}, {"attention_dp", p.attention_dp}}) {
        if (p.tp % ranks != 0)
            divider.refuse(name, fmt::format("expected a divisor of tp ({}), got {}", p.tp, ranks));
    }
    if (p.experts == ExpertExchange::kAllToAll && p.ep != p.tp)
        divider.refuse("ep", fmt::format("expected tp ({}) with all_to_all experts, got {}", p.tp, p.ep));
    divider.finish();
}

}  // namespace

ModelSpec rank_model(const ModelSpec& model, const Parallelism& p) {
    Divider divider(model);
    check(p, divider);
    ModelSpec rank = model;
    const int mixer_ranks = p.tp / p.attention_dp;
    for (LayerKind& kind : rank.kinds) {
        if (kind.linear) kind.linear = share(*kind.linear, mixer_ranks, divider);
        if (kind.attention) {
            kind.attention = std::visit(
                [&](const auto& m) -> Attention { return share(m, mixer_ranks, divider); }, *kind.attention);
        }
        if (kind.ffn)
            kind.ffn = std::visit([&](const auto& f) -> Ffn { return share(f, p, divider); }, *kind.ffn);
    }
    if (p.tp > 1) {
        const int padded = (model.vocab + kVocabularyPad - 1) / kVocabularyPad * kVocabularyPad;
        rank.vocab = divider.divide(padded, p.tp, "vocab", "rows of the padded vocabulary");
    }
    divider.finish();
    return rank;
}

}  // namespace kvsim
