// published.yaml, schema kvsim/published/1: writer and strict reader of PublishedFit.
#include <fmt/format.h>

#include <filesystem>

#include "sim/config/yaml.hpp"
#include "sim/cost/tables/families.hpp"

namespace kvsim {

namespace {

constexpr RealRange kNonNegativeReal{.min = 0.0};

std::string text_of(const ErrorSummary& e) {
    return fmt::format("{{rows: {}, median: {:.4g}, p90: {:.4g}, worst: {:.4g}}}", e.rows, e.median, e.p90,
                       e.worst);
}

template <class Law>
std::string text_of(std::string_view name, const FamilyFit<Law>& f) {
    std::string text = fmt::format("  {}:\n    kernel: {}\n    law:\n", name, f.kernel);
    for (const auto& p : kLawParameters<Law>)
        text += fmt::format("      {}: {}\n", p.name, f.law.*(p.member));
    text += "    range:\n";
    for (std::size_t i = 0; i < f.range.size(); ++i)
        text += fmt::format("      {}: [{}, {}]\n", Law::kAxes[i], f.range[i].min, f.range[i].max);
    text += fmt::format("    fitted: {}\n    held_out: {}\n    sigma: {{", text_of(f.fitted),
                        text_of(f.held_out));
    for (std::size_t r = 0; r < f.sigma.size(); ++r)
        text += fmt::format("{}{}: {:.4g}", r == 0 ? "" : ", ", kRegimeNames[r], f.sigma[r]);
    return text + "}\n";
}

ErrorSummary read_errors(const YamlCursor& c) {
    return {c.at("rows").integer({.min = 0}), c.at("median").real(kNonNegativeReal),
            c.at("p90").real(kNonNegativeReal), c.at("worst").real(kNonNegativeReal)};
}

ValidRange read_range(const YamlCursor& c) {
    const std::vector<YamlCursor> ends = c.items(2);
    if (ends.size() < 2) return {};
    const ValidRange range{ends[0].real(kNonNegativeReal), ends[1].real(kNonNegativeReal)};
    if (ends.size() > 2 || range.min > range.max) c.mistake("expected [smallest, largest]");
    return range;
}

template <class Law>
FamilyFit<Law> read_family(const YamlCursor& c) {
    FamilyFit<Law> f;
    f.kernel = c.at("kernel").string();
    const YamlCursor law = c.at("law");
    for (const auto& p : kLawParameters<Law>)
        f.law.*(p.member) = law.at(p.name).real({.min = p.bounds.min, .max = p.bounds.max}, p.bounds.initial);
    const YamlCursor range = c.at("range");
    for (std::size_t i = 0; i < f.range.size(); ++i) f.range[i] = read_range(range.at(Law::kAxes[i]));
    f.fitted = read_errors(c.at("fitted"));
    f.held_out = read_errors(c.at("held_out"));
    const YamlCursor sigma = c.at("sigma");
    for (std::size_t r = 0; r < f.sigma.size(); ++r)
        f.sigma[r] = sigma.at(kRegimeNames[r]).real(kNonNegativeReal);
    return f;
}

}  // namespace

std::string to_yaml(const PublishedFit& fit) {
    std::string text =
        "# Written by `kvsim fit-tables`. Laws: sim/cost/tables/*_law*.hpp, whose parameters carry their "
        "unit. "
        "Errors are |predicted/measured - 1|;\n"
        "# held_out: groups of shapes with odd index by first appearance, which the fit never saw; range: "
        "shapes of "
        "the table;\n"
        "# sigma: what two thirds of the held-out rows stay below, by what their time is made of.\n"
        "schema: kvsim/published/1\n";
    text += fmt::format("device: {}\nsource:\n  name: {}\n  commit: {}\n  licence: {}\nfamilies:\n",
                        fit.device, fit.source.name, fit.source.commit, fit.source.licence);
    for_each_family(
        [&](std::string_view name, const auto& slot) {
            if (slot) text += text_of(name, *slot);
        },
        fit.families);
    return text;
}

PublishedFit load_published(const std::string& folder_or_file) {
    namespace fs = std::filesystem;
    const fs::path path(folder_or_file);
    const std::string file = fs::is_directory(path) ? (path / "published.yaml").string() : folder_or_file;
    YamlReader reader;
    const YamlCursor root = reader.open(file, "published");
    PublishedFit fit;
    if (root.present()) {
        fit.origin = file;
        fit.device = root.at("device").string();
        const YamlCursor source = root.at("source");
        fit.source = {source.at("name").string(), source.at("commit").string(),
                      source.at("licence").string()};
        const YamlCursor families = root.at("families");
        for_each_family(
            [&](std::string_view name, auto& slot) {
                using Law = typename std::decay_t<decltype(*slot)>::Law;
                if (const YamlCursor family = families.find(name); family.present())
                    slot = read_family<Law>(family);
            },
            fit.families);
    }
    reader.finish();
    return fit;
}

}  // namespace kvsim
