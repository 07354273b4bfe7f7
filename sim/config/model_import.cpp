#include "sim/config/model_import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/base/text.hpp"
#include "sim/config/experiment.hpp"
#include "sim/config/json_fields.hpp"
#include "sim/config/model_import_types.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

namespace {

void read_quantisation(JsonFields& fields, ModelSpec& model) {
    if (!fields.has("quantization_config")) return;
    JsonFields quantised = fields.object("quantization_config");
    if (quantised.text("quant_method") != "fp8" || !quantised.has("weight_block_size")) {
        quantised.mistake(
            "quant_method",
            "expected fp8 with weight_block_size; for another format remove quantization_config, "
            "import, and write `weights` into the model file");
        return;
    }
    const std::vector<int> block = quantised.integers("weight_block_size");
    if (block.size() != 2 || block[0] == 0 || block[1] == 0) {
        quantised.mistake("weight_block_size", "expected two sizes above zero");
        return;
    }
    for (const WeightGroup group : {WeightGroup::kMixers, WeightGroup::kFfn, WeightGroup::kExperts})
        model.formats[static_cast<std::size_t>(group)] = {WeightType::kFp8, block[0], block[1], 4};
    quantised.ignore({"activation_scheme", "fmt"});
    quantised.list_unread();
}

// Fields of any model that change neither sizes nor operators. Weights of 16 bits are what is written.
void ignore_common(JsonFields& fields) {
    for (const char* key : {"dtype", "torch_dtype"}) {
        if (fields.has(key) && (fields.text(key) == "bfloat16" || fields.text(key) == "float16")) continue;
        fields.expect(key, nullptr);
    }
    fields.ignore({"_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id",
                   "eos_token_id", "hidden_act", "initializer_range", "max_position_embeddings", "model_type",
                   "pad_token_id", "partial_rotary_factor", "rms_norm_eps", "rope_parameters", "rope_scaling",
                   "rope_theta", "tie_word_embeddings", "transformers_version", "use_cache"});
}

// The reader of model files checks ranges and what must fit together.
ModelSpec checked(const ModelSpec& model, const std::string& file) {
    YamlReader reader;
    const YamlCursor root = reader.root(parse_yaml_text(to_yaml(model), file + ", as a model file"));
    root.at("schema");
    ModelSpec read = read_model(root);
    reader.finish();
    return read;
}

}  // namespace

std::vector<std::string_view> import_types() {
    std::vector<std::string_view> names;
    for (const ModelType& type : kModelTypes) names.push_back(type.name);
    return names;
}

ImportedModel import_model(const std::string& file, const std::string& name) {
    JsonDocument document = read_json_object(file);
    JsonReport report{file, std::move(document.places), {}, {}};
    JsonFields outer(document.json, "", report);
    const std::string word = outer.text("model_type");
    const auto* type = std::ranges::find(kModelTypes, word, &ModelType::name);
    if (type == kModelTypes.end()) {
        if (report.mistakes.empty()) {
            const std::vector<std::string_view> known = import_types();
            outer.mistake("model_type", fmt::format("expected one of {}, got \"{}\"{}", join(known), word,
                                                    suggestion(word, known)));
        }
        report.finish();
    }
    ImportedModel result;
    result.model.name = name;
    const bool nested = type->nested && outer.has("text_config");
    Import in{nested ? outer.object("text_config") : outer, result.model, result.remarks};
    result.model.hidden = in.fields.integer("hidden_size");
    result.model.vocab = in.fields.integer("vocab_size");
    JsonFields& owner = in.fields.has("tie_word_embeddings") ? in.fields : outer;
    result.model.tied_embeddings = owner.boolean("tie_word_embeddings");
    type->read(in);
    read_quantisation(nested ? outer : in.fields, result.model);
    ignore_common(in.fields);
    in.fields.list_unread();
    if (nested) {
        ignore_common(outer);
        outer.ignore({"image_token_id", "video_token_id", "vision_config", "vision_end_token_id",
                      "vision_start_token_id"});
        outer.list_unread();
    }
    report.finish();
    result.model = checked(result.model, file);
    result.not_understood = std::move(report.not_understood);
    return result;
}

}  // namespace kvsim
