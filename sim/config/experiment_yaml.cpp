#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "sim/base/check.hpp"
#include "sim/base/text.hpp"
#include "sim/config/locate.hpp"
#include "sim/config/quantity.hpp"
#include "sim/config/schema.hpp"
#include "sim/model/rank.hpp"

namespace kvsim {

namespace {

// The parts of an experiment that may stand in files of their own. Each is a name or path, a map that changes
// keys of one ({base: sglang, max_running_requests: 64}), or a whole map.
constexpr std::array<FileKind, 4> kParts{FileKind::kModel, FileKind::kDevice, FileKind::kEngine,
                                         FileKind::kWorkload};

// A file that is found by its name must hold what it is called, or results would name another thing. One that
// is given by its path may hold any name.
void check_name(YamlReader& reader, const YamlNode& whole, const std::string& reference,
                const std::string& file) {
    const YamlNode* own = whole.find("name");
    if (reference != std::filesystem::path(file).stem() || own == nullptr || own->text == reference) return;
    reader.note(
        Mistake{own->place, "name",
                fmt::format("expected `{}`, as the file is called, got {}", reference, describe(*own))});
}

// An experiment's tree on the way to one in which every part is a whole map.
class Resolver {
  public:
    Resolver(YamlReader& reader, YamlNode& tree, const std::string& file)
        : reader_(reader), tree_(tree), folders_(file) {}

    // An override below a part that is only named reads the named file first, so that it changes one key of
    // it.
    void apply(const Override& assignment) {
        const auto& [path, value] = assignment;
        try {
            const std::vector<std::string> keys = split_path(path, override_place(path, value));
            for (const FileKind part : kParts) {
                const bool inside = keys.size() > 1 && keys[0] == name(part) && keys[1] != "base";
                if (inside) expand(part);
                if (keys.size() == 1 && keys[0] == name(part)) done_.erase(part);
            }
            if (!broken_.contains(keys[0])) set_path(tree_, path, value);
        } catch (const ConfigError& error) {
            reader_.note(error);
        }
    }

    void expand_all() {
        for (const FileKind part : kParts) expand(part);
    }

    // Parts whose file could not be read: their mistakes have been noted.
    bool broken(FileKind part) const { return broken_.contains(name(part)); }

  private:
    void expand(FileKind part) {
        YamlNode* node = tree_.find(name(part));
        if (node == nullptr || !done_.insert(part).second) return;
        if (node->kind == YamlNode::Kind::kScalar) {
            if (std::optional<YamlNode> whole = load(part, *node, std::string(name(part))))
                *node = std::move(*whole);
            return;
        }
        const YamlNode* base = node->find("base");
        if (base == nullptr) return;
        if (base->kind != YamlNode::Kind::kScalar) {
            fail(part, Mistake{base->place, fmt::format("{}.base", name(part)),
                               fmt::format("expected a name or a path, got {}", describe(*base))});
            return;
        }
        std::optional<YamlNode> whole = load(part, *base, fmt::format("{}.base", name(part)));
        if (!whole) return;
        for (YamlEntry& change : node->entries) {
            if (change.key == "base") continue;
            const auto same = [&](const YamlEntry& e) { return e.key == change.key; };
            const auto old = std::ranges::find_if(whole->entries, same);
            if (old != whole->entries.end()) {
                *old = std::move(change);
            } else {
                whole->entries.push_back(std::move(change));
            }
        }
        *node = std::move(*whole);
    }

    std::optional<YamlNode> load(FileKind part, const YamlNode& reference, const std::string& path) {
        try {
            const std::string file = folders_.find(part, reference.text, reference.place, path);
            std::optional<YamlNode> whole =
                reader_.load(file, name(part), part == FileKind::kModel ? kModelSchema : 1);
            if (whole) {
                whole->erase("schema");
                check_name(reader_, *whole, reference.text, file);
            } else {
                broken_.emplace(name(part));
            }
            return whole;
        } catch (const ConfigError& error) {
            reader_.note(error);
            broken_.emplace(name(part));
            return std::nullopt;
        }
    }

    void fail(FileKind part, Mistake mistake) {
        reader_.note(std::move(mistake));
        broken_.emplace(name(part));
    }

    YamlReader& reader_;
    YamlNode& tree_;
    ConfigFolders folders_;
    std::set<FileKind> done_;
    std::set<std::string, std::less<>> broken_;
};

// Whether they divide the model's heads and widths is rank_model()'s to say.
Parallelism read_parallelism(const YamlCursor& map) {
    constexpr IntRange kRanks{1, 1024};
    Parallelism p;
    if (!map.present()) return p;
    p.tp = map.find("tp").small_integer(kRanks, 1);
    p.ep = map.find("ep").small_integer(kRanks, 1);
    p.attention_dp = map.find("attention_dp").small_integer(kRanks, 1);
    if (const YamlCursor experts = map.find("experts"); experts.present())
        p.experts = experts.choice<ExpertExchange>(kExpertExchangeNames);
    return p;
}

void write_parallelism(YAML::Emitter& out, const Parallelism& p) {
    out << YAML::Flow << YAML::BeginMap << YAML::Key << "tp" << YAML::Value << p.tp << YAML::Key << "ep"
        << YAML::Value << p.ep << YAML::Key << "attention_dp" << YAML::Value << p.attention_dp << YAML::Key
        << "experts" << YAML::Value << std::string(kExpertExchangeNames[static_cast<std::size_t>(p.experts)])
        << YAML::EndMap;
}

Experiment read_experiment(const YamlCursor& root, const Resolver& parts, const ConfigFolders& folders) {
    Experiment experiment;
    root.at("schema");
    experiment.name = read_name(root.at("name"));
    const YamlCursor model = root.at("model");
    const YamlCursor device = root.at("device");
    const YamlCursor engine = root.at("engine");
    const YamlCursor workload = root.at("workload");
    if (!parts.broken(FileKind::kModel)) experiment.model = read_model(model);
    if (!parts.broken(FileKind::kDevice)) experiment.device = read_device(device);
    if (!parts.broken(FileKind::kEngine)) experiment.engine = read_engine(engine);
    if (!parts.broken(FileKind::kWorkload)) experiment.workload = read_workload(workload);
    experiment.parallelism = read_parallelism(root.find("parallelism"));
    experiment.linear = read_linear(root.find("linear"), experiment.model.state);
    const bool arrivals = !std::holds_alternative<SteadyWorkload>(experiment.workload);
    // A workload that could not be read has been noted; it is no steady one.
    experiment.serving = read_serving(root, arrivals || parts.broken(FileKind::kWorkload));
    experiment.linear.drafts = experiment.serving.speculation.most_drafts();
    experiment.seed = static_cast<std::uint64_t>(root.find("seed").integer({.min = 0}, 1));
    if (const YamlCursor horizon = root.find("horizon"); horizon.present())
        experiment.horizon = horizon.time();
    if (experiment.horizon > Time() && experiment.serving.warmup >= *experiment.horizon) {
        root.find("warmup").mistake(
            fmt::format("expected less than the horizon of {}, after which nothing is left",
                        to_text(*experiment.horizon)));
    }
    const YamlCursor profile = root.find("profile_dir");
    experiment.profile_dir = profile.present() ? resolve_path(profile.string(), profile.place())
                                               : folders.profile(experiment.device.profile);
    return experiment;
}

// What one part asks of another, by the places where it asks.
struct CrossReferences {
    Place parallelism;
    std::vector<YamlEntry> unfused;  // of the engine, by model

    explicit CrossReferences(const YamlNode& tree) {
        if (const YamlNode* ranks = tree.find("parallelism")) parallelism = ranks->place;
        const YamlNode* node = &tree;
        for (const std::string_view key : {"engine", "steps", "unfused"}) {
            node = node->find(key);
            if (node == nullptr) return;
        }
        unfused = node->entries;
    }

    void check(const Experiment& experiment, const ConfigFolders& folders) const {
        std::vector<Mistake> mistakes;
        try {
            rank_model(experiment.model, experiment.parallelism);
        } catch (const ConfigError& error) {
            for (const Mistake& m : error.mistakes())
                mistakes.push_back({parallelism, "parallelism", format_mistake(m)});
        }
        if (experiment.parallelism.tp > 1 && experiment.device.link_bandwidth.value() == 0.0) {
            mistakes.push_back({parallelism, "parallelism.tp",
                                fmt::format("expected 1, because device {} has no link_bandwidth, got {}",
                                            experiment.device.name, experiment.parallelism.tp)});
        }
        const std::vector<std::string> models = folders.names(FileKind::kModel);
        const std::vector<std::string_view> known(models.begin(), models.end());
        for (const YamlEntry& entry : unfused) {
            if (entry.key == experiment.model.name || std::ranges::find(known, entry.key) != known.end())
                continue;
            mistakes.push_back(
                {entry.key_place, "engine.steps.unfused",
                 fmt::format("no model is called `{}`{}", entry.key, suggestion(entry.key, known))});
        }
        if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
    }
};

}  // namespace

std::string read_name(const YamlCursor& value) {
    const std::string text = value.string();
    const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; };
    if (!text.empty() && (text.front() == '.' || !std::ranges::all_of(text, allowed))) {
        value.mistake(fmt::format("expected a name of letters, digits, `.`, `_` and `-`, got `{}`", text));
    }
    return text;
}

std::string shortest(double value) {
    return fmt::format("{}", value);
}

ModelSpec load_model(const std::string& reference) {
    YamlReader reader;
    const std::string beside_experiments =
        (std::filesystem::current_path() / "configs/experiments/-").string();
    const std::string file =
        ConfigFolders(beside_experiments).find(FileKind::kModel, reference, Place{reference}, "");
    std::optional<YamlNode> tree = reader.load(file, name(FileKind::kModel), kModelSchema);
    if (!tree) reader.finish();
    KVSIM_CHECK(tree, "{}: neither a tree nor a mistake", file);
    check_name(reader, *tree, reference, file);
    const YamlCursor root = reader.root(std::move(*tree));
    root.at("schema");
    ModelSpec model = read_model(root);
    reader.finish();
    return model;
}

Experiment load_experiment(const std::string& file, const std::vector<Override>& overrides) {
    YamlReader reader;
    std::optional<YamlNode> tree = reader.load(file, "experiment");
    if (!tree) reader.finish();
    KVSIM_CHECK(tree, "{}: neither a tree nor a mistake", file);
    Resolver parts(reader, *tree, file);
    for (const Override& assignment : overrides) parts.apply(assignment);
    parts.expand_all();
    const CrossReferences references(*tree);
    const ConfigFolders folders(file);
    Experiment experiment = read_experiment(reader.root(std::move(*tree)), parts, folders);
    reader.finish();
    references.check(experiment, folders);
    return experiment;
}

std::string to_yaml(const ModelSpec& model) {
    YAML::Emitter out;
    write_model(out, model);
    KVSIM_CHECK(out.good(), "YAML emitter: {}", out.GetLastError());
    return fmt::format("schema: kvsim/{}/{}\n{}\n", name(FileKind::kModel), kModelSchema, out.c_str());
}

std::string to_yaml(const Experiment& experiment) {
    YAML::Emitter out;
    const auto key = [&](const char* text) -> YAML::Emitter& {
        return out << YAML::Key << text << YAML::Value;
    };
    out << YAML::BeginMap;
    key("schema") << "kvsim/experiment/1";
    key("name") << experiment.name;
    write_model(key("model"), experiment.model);
    write_device(key("device"), experiment.device);
    write_engine(key("engine"), experiment.engine);
    write_parallelism(key("parallelism"), experiment.parallelism);
    write_linear(key("linear"), experiment.linear);
    write_workload(key("workload"), experiment.workload);
    write_serving(out, experiment.serving, !std::holds_alternative<SteadyWorkload>(experiment.workload));
    key("seed") << experiment.seed;
    if (experiment.horizon) key("horizon") << to_text(*experiment.horizon);
    key("profile_dir") << experiment.profile_dir;
    out << YAML::EndMap;
    KVSIM_CHECK(out.good(), "YAML emitter: {}", out.GetLastError());
    return fmt::format("{}\n", out.c_str());
}

}  // namespace kvsim
