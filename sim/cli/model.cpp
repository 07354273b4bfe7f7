// kvsim model: what a model is made of, and model files from Hugging Face configurations.
#include "sim/model/model.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <filesystem>
#include <memory>

#include "sim/base/text.hpp"
#include "sim/cli/command.hpp"
#include "sim/cli/model_table.hpp"
#include "sim/cli/output_folder.hpp"
#include "sim/config/experiment.hpp"
#include "sim/config/model_import.hpp"
#include "sim/model/rank.hpp"

namespace kvsim {
namespace {

struct ShowOptions {
    std::string model;
    Parallelism parallelism;
    bool json = false;
};

struct ImportOptions {
    std::string config;
    std::string out;
};

ExitCode show(const ShowOptions& options) {
    const ModelSpec model = load_model(options.model);
    const ModelSpec rank = rank_model(model, options.parallelism);
    fmt::print("{}", options.json ? model_json(model, rank) : model_table(model, rank));
    return ExitCode::kGood;
}

// What the file will be called; to stdout, what the folder of the configuration is called, as models are.
std::string name_of(const ImportOptions& options) {
    namespace fs = std::filesystem;
    if (!options.out.empty()) return fs::path(options.out).stem().string();
    std::string name = fs::absolute(options.config).lexically_normal().parent_path().filename().string();
    for (char& c : name) {
        const auto byte = static_cast<unsigned char>(c);
        const bool allowed = std::isalnum(byte) != 0 || c == '.' || c == '_' || c == '-';
        c = allowed ? static_cast<char>(std::tolower(byte)) : '-';
    }
    return name.empty() || name.front() == '.' ? "imported" : name;
}

ExitCode import(const ImportOptions& options) {
    if (!options.out.empty()) require_writable(options.out, "--out");
    const ImportedModel imported = import_model(options.config, name_of(options));
    const std::string text =
        fmt::format("# Sizes: {}.\n{}", std::filesystem::path(options.config).filename().string(),
                    to_yaml(imported.model));
    for (const std::string& field : imported.not_understood)
        fmt::print(stderr, "{}: not understood: {}\n", options.config, field);
    for (const std::string& remark : imported.remarks) fmt::print(stderr, "{}: {}\n", options.config, remark);
    if (options.out.empty()) {
        fmt::print("{}", text);
    } else {
        replace_file(options.out, text);
        fmt::print("{}\n", options.out);
    }
    return ExitCode::kGood;
}

}  // namespace

Action declare_model(CLI::App& app) {
    app.require_subcommand(1);
    const auto shown = std::make_shared<ShowOptions>();
    CLI::App* show_command = app.add_subcommand(
        "show", "Layers, parameters and bytes per request of a model or of one rank of it");
    show_command->add_option("MODEL", shown->model, "Name (kvsim list models) or file")->required();
    const auto ranks = [&](const char* option, int& value, const char* help) {
        show_command->add_option(option, value, help)->check(CLI::Range(1, 1 << 16));
    };
    ranks("--tp", shown->parallelism.tp, "Tensor-parallel ranks");
    ranks("--ep", shown->parallelism.ep, "Expert-parallel groups; divides --tp");
    ranks("--attention-dp", shown->parallelism.attention_dp,
          "Data-parallel groups of the mixers; divides --tp");
    show_command->add_flag("--json", shown->json, "Print JSON");

    const auto imported = std::make_shared<ImportOptions>();
    CLI::App* import_command =
        app.add_subcommand("import", "Turn a config.json of Hugging Face into a model file");
    const std::vector<std::string_view> types = import_types();
    import_command
        ->add_option("CONFIG", imported->config, fmt::format("config.json; model_type: {}", join(types)))
        ->required();
    import_command->add_option("--out", imported->out, "Model file (default: stdout)");
    return [shown, imported, show_command](std::span<const std::string>) {
        return show_command->parsed() ? show(*shown) : import(*imported);
    };
}

}  // namespace kvsim
