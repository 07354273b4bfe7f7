#include "sim/cli/model_table.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "sim/cli/table.hpp"
#include "sim/model/parameters.hpp"
#include "sim/model/request_bytes.hpp"

namespace kvsim {
namespace {

// Sizes of a part in one line.
std::string describe(const LinearMixer& m) {
    const std::string conv = m.conv_kernel > 0 ? fmt::format(", convolution {}", m.conv_kernel) : "";
    return fmt::format("{} {}/{} heads, state {} x {}{}", name(m.family), m.k_heads, m.v_heads, m.v_dim,
                       m.k_dim, conv);
}
std::string describe(const GqaMixer& m) {
    return fmt::format("gqa {}/{} heads of {}{}{}{}", m.q_heads, m.kv_heads, m.head_dim,
                       m.output_gate ? ", gated" : "", m.qk_norm ? ", q and k norm" : "",
                       m.rope ? "" : ", no positions");
}
std::string describe(const MlaMixer& m) {
    return fmt::format("mla {} heads of {} + {}, latent {}{}", m.q_heads, m.nope_dim, m.rope_dim, m.kv_latent,
                       m.rope ? "" : ", no positions");
}
std::string describe(const DenseFfn& f) {
    return fmt::format("dense {}, {}", f.width, kActivationNames[static_cast<std::size_t>(f.activation)]);
}
std::string describe(const MoeFfn& f) {
    const std::string held = f.expert_ranks > 1 ? fmt::format("{} of {}", f.experts_held(), f.experts)
                                                : fmt::format("{}", f.experts);
    return fmt::format("moe {} experts of {}, top {}{}{}, {}{}", held, f.expert_width, f.top_k,
                       f.latent > 0 ? fmt::format(", latent {}", f.latent) : "",
                       f.shared_width > 0 ? fmt::format(", shared {}", f.shared_width) : "",
                       kActivationNames[static_cast<std::size_t>(f.activation)],
                       f.power_law ? fmt::format(", popularity x^-{}", *f.power_law) : "");
}

// One line of the table: a part of a kind of layer, or an end of the model.
struct Row {
    std::string kind;
    int layers = 1;
    std::string part;
    std::string what;
    WeightCount one;  // layer
};

std::vector<Row> rows_of(const ModelSpec& model) {
    std::vector<Row> rows;
    for (const LayerKind& kind : model.kinds) {
        const int layers = model.count(kind);
        if (layers == 0) continue;  // of the MTP module alone
        const LayerWeights weights = layer_weights(model, kind);
        const auto add = [&](std::string_view part, std::string what, const WeightCount& one) {
            rows.push_back({std::string(1, kind.letter), layers, std::string(part), std::move(what), one});
        };
        const auto described = [](const auto& part) { return describe(part); };
        if (kind.linear) add(kind.linear->name, describe(*kind.linear), weights.linear);
        if (kind.attention)
            add(part_name(*kind.attention), std::visit(described, *kind.attention), weights.attention);
        if (kind.ffn) add(part_name(*kind.ffn), std::visit(described, *kind.ffn), weights.ffn);
        add("norms", fmt::format("{} x {}", kind.sublayers(), model.hidden), weights.norms);
    }
    const ModelWeights weights = model_weights(model);
    rows.push_back(
        {"", 1, "embedding", fmt::format("{} x {}", model.vocab, model.hidden), weights.embedding});
    rows.push_back({"", 1, "head", model.tied_embeddings ? "the embedding" : rows.back().what, weights.head});
    if (!model.mtp_pattern.empty())
        rows.push_back({"", 1, "mtp", "layers " + model.mtp_pattern, weights.mtp});
    return rows;
}

std::string millions(std::int64_t n) {
    return fmt::format("{:.2f}", static_cast<double>(n) * 1e-6);
}
std::string mib(Bytes bytes) {
    return fmt::format("{:.2f}", static_cast<double>(bytes.value()) / (1 << 20));
}

std::string parameter_table(const ModelSpec& rank) {
    using enum TextTable::Align;
    TextTable table({{"kind", kLeft},
                     {"layers"},
                     {"part", kLeft},
                     {"what", kLeft},
                     {"M each"},
                     {"M in all"},
                     {"M active"},
                     {"MiB"}});
    for (const Row& row : rows_of(rank)) {
        const WeightCount all = row.one * row.layers;
        table.add_row({row.kind, fmt::format("{}", row.layers), row.part, row.what,
                       millions(row.one.parameters), millions(all.parameters), millions(all.active),
                       mib(all.bytes)});
    }
    const ModelWeights weights = model_weights(rank);
    const WeightCount text = weights.text();
    table.add_row({"", fmt::format("{}", rank.layers()), "total", "without mtp, with the final norm", "",
                   millions(text.parameters), millions(text.active), mib(text.bytes)});
    return table.str();
}

std::string request_table(const ModelSpec& rank) {
    using enum TextTable::Align;
    TextTable table({{"memory of a request", kLeft}, {"bytes"}, {"", kLeft}});
    const auto add = [&](std::string what, Bytes bytes, std::string unit) {
        table.add_row({std::move(what), fmt::format("{}", bytes.value()), std::move(unit)});
    };
    add(fmt::format("state, {}", name(rank.state)), state_bytes_per_request(rank, rank.state), "one copy");
    add("convolution", conv_bytes_per_request(rank), "one copy");
    add("buffer", ring_bytes_per_request(rank, 1), "per token that it holds");
    add("KV cache", kv_bytes_per_token(rank), "per token");
    if (!rank.mtp_pattern.empty()) add("KV cache of mtp", mtp_kv_bytes_per_token(rank), "per token");
    return table.str();
}

}  // namespace

std::string model_table(const ModelSpec& model, const ModelSpec& rank) {
    return fmt::format(
        "{}: {}\n\n{}\n{}", model.name,
        rank == model ? "the whole model" : "what one rank holds; parts that ranks share count in full",
        parameter_table(rank), request_table(rank));
}

std::string model_json(const ModelSpec& model, const ModelSpec& rank) {
    const auto count = [](const WeightCount& c) {
        return nlohmann::ordered_json{
            {"parameters", c.parameters}, {"active", c.active}, {"bytes", c.bytes.value()}};
    };
    nlohmann::ordered_json json;
    json["model"] = model.name;
    json["layers"] = nlohmann::ordered_json::array();
    for (const LayerKind& kind : rank.kinds) {
        if (rank.count(kind) == 0) continue;
        const LayerWeights weights = layer_weights(rank, kind);
        json["layers"].push_back({{"kind", std::string(1, kind.letter)},
                                  {"count", rank.count(kind)},
                                  {"linear", count(weights.linear)},
                                  {"attention", count(weights.attention)},
                                  {"ffn", count(weights.ffn)},
                                  {"norms", count(weights.norms)}});
    }
    const ModelWeights weights = model_weights(rank);
    json["body"] = count(weights.body);
    json["embedding"] = count(weights.embedding);
    json["head"] = count(weights.head);
    json["mtp"] = count(weights.mtp);
    json["text"] = count(weights.text());
    json["per_request"] = {{"state_bytes", state_bytes_per_request(rank, rank.state).value()},
                           {"conv_bytes", conv_bytes_per_request(rank).value()},
                           {"record_bytes", ring_bytes_per_request(rank, 1).value()},
                           {"kv_bytes_per_token", kv_bytes_per_token(rank).value()},
                           {"mtp_kv_bytes_per_token", mtp_kv_bytes_per_token(rank).value()}};
    return json.dump(2) + '\n';
}

}  // namespace kvsim
