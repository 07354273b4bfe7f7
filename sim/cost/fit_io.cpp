// fit.yaml, schema kvsim/fit/1: writer and strict reader of ProfileFit.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "sim/cost/fit_text.hpp"

namespace kvsim {

namespace {

// The ranges of a kernel, by their keys.
template <class Fit>  // LinearFit, const or not
auto ranges_of(Fit& k) {
    using Range = std::pair<std::string_view, decltype(&k.bytes)>;
    return std::array<Range, 6>{{{"k_heads", &k.k_heads},
                                 {"v_heads", &k.v_heads},
                                 {"batch", &k.batch},
                                 {"tokens_per_row", &k.tokens},
                                 {"records_per_row", &k.records_per_row},
                                 {"bytes", &k.bytes}}};
}

// ---- writer ----

std::string text_of(std::string_view key, const StreamFit& s) {
    return fmt::format("{}:\n  law:\n{}  range:\n    bytes: {}\n  fitted: {}\n", key,
                       text_of_law(s.law, "    "), text_of(s.bytes), text_of(s.fitted));
}

std::string text_of(const LinearFit& k) {
    std::string text = fmt::format("  - kernel: {}\n    family: {}\n    form: {}\n    state_dtype: {}\n",
                                   k.kernel, name(k.family), name(k.form), name(k.state));
    if (has_ring(k.form)) text += fmt::format("    records: {}\n", name(k.records));
    text += fmt::format("    k_dim: {}\n    v_dim: {}\n    borrowed: {}\n    regimes:\n", k.k_dim, k.v_dim,
                        k.borrowed);
    for (const LinearRegime& regime : k.regimes) {
        text += "      - ";
        if (has_ring(k.form)) text += fmt::format("kernel: {}\n        ", name(regime.kernel));
        if (regime.max_state_bytes < std::numeric_limits<double>::infinity())
            text += fmt::format("max_state_bytes: {}\n        ", regime.max_state_bytes);
        text += "law:\n";
        text += std::visit([](const auto& law) { return text_of_law(law, "          "); }, regime.law);
    }
    text += "    range:\n";
    for (const auto& [key, range] : ranges_of(k)) text += fmt::format("      {}: {}\n", key, text_of(*range));
    return text + fmt::format("    fitted: {}\n    held_out: {}\n", text_of(k.fitted), text_of(k.held_out));
}

// ---- reader ----

StreamFit read_stream(const YamlCursor& c) {
    return {read_law<StreamLaw>(c.at("law")), read_range(c.at("range").at("bytes")),
            read_errors(c.at("fitted"))};
}

// Of a form with a ring: one per kernel, the pipelined one last.
std::vector<LinearRegime> read_kernels(const YamlCursor& c, Form form) {
    std::vector<LinearRegime> regimes;
    for (const YamlCursor& item : c.items(1)) {
        LinearRegime regime;
        regime.kernel = item.at("kernel").choice<BufferedKernel>(kBufferedKernelNames);
        if (!regimes.empty() && regimes.back().kernel >= regime.kernel)
            item.at("kernel").mistake("expected small, then pipelined, at most once each");
        const bool known = with_law_of(form, regime.kernel,
                                       [&]<class Law>(Law) { regime.law = read_law<Law>(item.at("law")); });
        if (!known) {
            item.at("kernel").mistake(fmt::format("does not serve form {}", name(form)));
            item.at("law").ignore_rest();
        }
        regimes.push_back(regime);
    }
    return regimes;
}

// Of a form without: by ascending size, the last one without end.
std::vector<LinearRegime> read_sizes(const YamlCursor& c, Form form) {
    std::vector<LinearRegime> regimes;
    const std::vector<YamlCursor> items = c.items(1);
    double above = 0.0;
    for (const YamlCursor& item : items) {
        LinearRegime regime;
        if (regimes.size() + 1 < items.size()) {
            regime.max_state_bytes = item.at("max_state_bytes").real({.min = above, .above_min = true});
            above = regime.max_state_bytes;
        }
        with_law_of(form, regime.kernel, [&]<class Law>(Law) { regime.law = read_law<Law>(item.at("law")); });
        regimes.push_back(regime);
    }
    return regimes;
}

LinearFit read_linear(const YamlCursor& c) {
    LinearFit k;
    k.kernel = c.at("kernel").string();
    k.family = c.at("family").choice<Family>(kFamilyNames);
    k.form = c.at("form").choice<Form>(kFormNames);
    k.state = c.at("state_dtype").choice<StateFormat>(kStateFormatNames);
    if (has_ring(k.form)) k.records = c.at("records").choice<RecordFormat>(kRecordFormatNames);
    k.k_dim = c.at("k_dim").small_integer({.min = 1, .max = 4096}, 1);
    k.v_dim = c.at("v_dim").small_integer({.min = 1, .max = 4096}, 1);
    k.borrowed = c.at("borrowed").boolean();
    if (with_law_of(k.form, BufferedKernel::kPipelined, [](auto) {})) {
        k.regimes =
            has_ring(k.form) ? read_kernels(c.at("regimes"), k.form) : read_sizes(c.at("regimes"), k.form);
    } else {
        c.at("form").mistake(fmt::format("no law for form {}", name(k.form)));
        c.at("regimes").ignore_rest();
    }
    const YamlCursor range = c.at("range");
    for (const auto& [key, member] : ranges_of(k)) *member = read_range(range.at(key));
    k.fitted = read_errors(c.at("fitted"));
    k.held_out = read_errors(c.at("held_out"));
    return k;
}

}  // namespace

std::string to_yaml(const ProfileFit& fit) {
    std::string text =
        "# Written by `kvsim fit` from the CSV files beside it. Laws: sim/cost/law.hpp. Errors are "
        "|predicted/measured - 1|;\n"
        "# held_out: rows that the fit never saw (sim/cost/profile.hpp says which). borrowed: the law of the "
        "other record\n"
        "# format, but for what depends on records.\n"
        "schema: kvsim/fit/1\n";
    text += fmt::format("empty_node_us: {:.6f}\n", to_us(fit.empty_node));
    text += text_of("copy", fit.copy) + text_of("read", fit.read);
    text += fit.linear.empty() ? "linear: []\n" : "linear:\n";
    for (const LinearFit& k : fit.linear) text += text_of(k);
    return text;
}

ProfileFit load_fit(const std::string& folder_or_file) {
    namespace fs = std::filesystem;
    const fs::path path(folder_or_file);
    const std::string file = fs::is_directory(path) ? (path / "fit.yaml").string() : folder_or_file;
    YamlReader reader;
    const YamlCursor root = reader.open(file, "fit");
    ProfileFit fit;
    if (root.present()) {
        fit.origin = file;
        fit.empty_node =
            time_from_us(root.at("empty_node_us").real({.min = 0.0, .max = 1e3, .above_min = true}));
        fit.copy = read_stream(root.at("copy"));
        fit.read = read_stream(root.at("read"));
        for (const YamlCursor& kernel : root.at("linear").items()) fit.linear.push_back(read_linear(kernel));
    }
    reader.finish();
    return fit;
}

}  // namespace kvsim
