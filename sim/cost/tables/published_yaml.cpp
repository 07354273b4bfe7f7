// published.yaml, schema kvsim/published/1: writer and strict reader of PublishedFit.
#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "sim/cost/fit_text.hpp"
#include "sim/cost/tables/families.hpp"

namespace kvsim {

namespace {

// A name that others chose, plain or in quotes.
std::string scalar(std::string_view text) {
    constexpr std::string_view kPlain =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./+()";
    if (!text.empty() && std::isalnum(static_cast<unsigned char>(text.front())) != 0 &&
        text.find_first_not_of(kPlain) == std::string_view::npos)
        return std::string(text);
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') quoted += '\\';
        quoted += c >= 0 && c < ' ' ? fmt::format("\\x{:02x}", c) : std::string(1, c);
    }
    return quoted + '"';
}

template <class Law>
std::string text_of(std::string_view name, const FamilyFit<Law>& f) {
    std::string text = fmt::format("  {}:\n    kernel: {}\n    law:\n", name, scalar(f.kernel));
    text += text_of_law(f.law, "      ");
    text += "    range:\n";
    for (std::size_t i = 0; i < f.range.size(); ++i)
        text += fmt::format("      {}: {}\n", Law::kAxes[i], text_of(f.range[i]));
    text += fmt::format("    fitted: {}\n    held_out: {}\n    sigma: {{", text_of(f.fitted),
                        text_of(f.held_out));
    for (std::size_t r = 0; r < f.sigma.size(); ++r)
        text += fmt::format("{}{}: {:.4g}", r == 0 ? "" : ", ", kRegimeNames[r], f.sigma[r]);
    return text + "}\n";
}

template <class Law>
FamilyFit<Law> read_family(const YamlCursor& c) {
    FamilyFit<Law> f;
    f.kernel = c.at("kernel").string();
    f.law = read_law<Law>(c.at("law"));
    const YamlCursor range = c.at("range");
    for (std::size_t i = 0; i < f.range.size(); ++i) f.range[i] = read_range(range.at(Law::kAxes[i]));
    f.fitted = read_errors(c.at("fitted"));
    f.held_out = read_errors(c.at("held_out"));
    const YamlCursor sigma = c.at("sigma");
    for (std::size_t r = 0; r < f.sigma.size(); ++r)
        f.sigma[r] = sigma.at(kRegimeNames[r]).real({.min = 0.0});
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
                        scalar(fit.device), scalar(fit.source.name), scalar(fit.source.commit),
                        scalar(fit.source.licence));
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
