#include "kernels/calibrate/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kernels/traffic_linear.hpp"
#include "kernels/traffic_stream.hpp"
#include "sim/config/yaml.hpp"

namespace kvsim::calibrate {
namespace {

// What the launchers of linear layers accept (kernels/launch.hpp), repeated here because this file is built
// without CUDA.
constexpr int kDim = 128;
constexpr int kMaxBatch = 65535;
constexpr int kMaxRing = 128;
constexpr int kMaxTokens = 9;

constexpr std::array<std::string_view, 4> kSweepForms{"recurrent", "buffered", "verify_stored",
                                                      "verify_buffered"};
constexpr std::array kSweepKernels{Kernel::kLinearRecurrent, Kernel::kLinearBuffered,
                                   Kernel::kLinearVerifyStored, Kernel::kLinearVerifyBuffered};

std::vector<int> fills(const std::vector<FillSpec>& specs, int last) {
    std::vector<int> result;
    for (const FillSpec& spec : specs) {
        switch (spec.kind) {
            case FillSpec::Kind::kExact:
                result.push_back(spec.fill);
                break;
            case FillSpec::Kind::kMiddle:
                result.push_back(last / 2);
                break;
            case FillSpec::Kind::kLast:
                result.push_back(last);
                break;
            case FillSpec::Kind::kAll:
                for (int fill = 0; fill <= last; ++fill) result.push_back(fill);
        }
    }
    return result;
}

void add_once(std::vector<Case>& cases, const Case& c) {
    if (std::find(cases.begin(), cases.end(), c) == cases.end()) cases.push_back(c);
}

int flush_rows(const FlushRowsSpec& spec, const Case& c) {
    switch (spec.kind) {
        case FlushRowsSpec::Kind::kCount:
            return spec.n;
        case FlushRowsSpec::Kind::kBatchShare:
            return c.batch / spec.n;
        case FlushRowsSpec::Kind::kSteady:
            return c.batch / c.buffer_length;
    }
    return 0;
}

// The cases of one shape, capacity, number of tokens and batch, all given in `base`, of a form with a ring.
std::vector<Case> ring_cases(const LinearSweep& sweep, const Case& base) {
    std::vector<Case> cases;
    Case c = base;
    for (const int fill : fills(sweep.fill, base.last_fill())) {
        c.fill = fill;
        add_once(cases, c);
    }
    c.flush_rows = base.batch;
    for (const int fill : fills(sweep.flush_fill, base.last_fill())) {
        if (folded_records(form_of(base.kernel), fill) == 0) continue;
        c.fill = fill;
        add_once(cases, c);
    }
    for (const FlushRowsSpec& spec : sweep.mixed_flush_rows) {
        c.flush_rows = flush_rows(spec, base);
        if (c.flush_rows < 1 || c.flush_rows > base.batch) continue;
        // With no row left over for another phase, all rows share one.
        c.fill = c.flush_rows == base.batch ? std::optional(base.last_fill()) : std::nullopt;
        add_once(cases, c);
    }
    return cases;
}

std::vector<int> integers(const YamlCursor& list, IntRange range) {
    std::vector<int> values;
    for (const YamlCursor& item : list.items(1))
        values.push_back(item.small_integer(range, static_cast<int>(range.min)));
    return values;
}

bool is_word(const std::string& text) {
    return text.front() >= 'A';
}

std::vector<FillSpec> read_fills(const YamlCursor& list, IntRange range) {
    static constexpr std::array<std::string_view, 3> kWords{"middle", "last", "all"};
    static constexpr std::array kKinds{FillSpec::Kind::kMiddle, FillSpec::Kind::kLast, FillSpec::Kind::kAll};
    std::vector<FillSpec> specs;
    if (!list.present()) return specs;
    for (const YamlCursor& item : list.items(1)) {
        const std::string text = item.string();
        if (text.empty()) continue;  // no scalar: noted
        if (is_word(text)) {
            specs.push_back({kKinds[item.choice_index(kWords).value_or(0)], 0});
        } else {
            specs.push_back({FillSpec::Kind::kExact, item.small_integer(range)});
        }
    }
    return specs;
}

std::vector<FlushRowsSpec> read_flush_rows(const YamlCursor& list) {
    std::vector<FlushRowsSpec> specs;
    if (!list.present()) return specs;
    for (const YamlCursor& item : list.items(1)) {
        const std::string text = item.string();
        if (text.empty()) continue;  // no scalar: noted
        if (!is_word(text)) {
            specs.push_back(
                {FlushRowsSpec::Kind::kCount, item.small_integer({.min = 1, .max = kMaxBatch}, 1)});
            continue;
        }
        if (text == "B/C") {
            specs.push_back({FlushRowsSpec::Kind::kSteady, 1});
            continue;
        }
        int divisor = text == "B" ? 1 : 0;
        if (text.starts_with("B/")) {
            const auto [stop, error] = std::from_chars(text.data() + 2, text.data() + text.size(), divisor);
            if (error != std::errc{} || stop != text.data() + text.size()) divisor = 0;
        }
        if (divisor < 1)
            item.mistake(fmt::format("expected a number of rows, B, B/n or B/C, got `{}`", text));
        specs.push_back({FlushRowsSpec::Kind::kBatchShare, std::max(1, divisor)});
    }
    return specs;
}

LinearShape read_shape(const YamlCursor& entry, Kernel kernel) {
    LinearShape s;
    const YamlCursor family = entry.at("family");
    s.family = family.choice<Family>(kFamilyNames);
    if (s.family != Family::kGdn) family.mistake("expected gdn: no other family has kernels");
    const YamlCursor state = entry.at("state_dtype");
    s.state = state.choice<StateFormat>(kStateFormatNames);
    if (s.state == StateFormat::kFp16)
        state.mistake("expected fp32, bf16 or split: no kernel has fp16 states");
    if (s.state == StateFormat::kSplit && !has_ring(kernel))
        state.mistake("expected fp32 or bf16: the split format serves forms that leave the state alone");
    if (has_ring(kernel)) s.records = entry.find("records").choice<RecordFormat>(kRecordFormatNames);
    s.k_heads = entry.at("k_heads").small_integer({.min = 1, .max = 1024}, 1);
    s.k_dim = entry.at("k_dim").small_integer({.min = kDim, .max = kDim}, kDim);
    s.v_dim = entry.at("v_dim").small_integer({.min = kDim, .max = kDim}, kDim);
    return s;
}

// Ring lengths, fills and flushes.
void read_ring(const YamlCursor& entry, LinearSweep& sweep) {
    const YamlCursor lengths = entry.at("buffer_length");
    sweep.buffer_length = integers(lengths, {.min = 1, .max = kMaxRing});
    if (sweep.buffer_length.empty() || sweep.tokens.empty()) return entry.ignore_rest();  // noted
    const int smallest = *std::min_element(sweep.buffer_length.begin(), sweep.buffer_length.end());
    const int tokens = *std::max_element(sweep.tokens.begin(), sweep.tokens.end());
    const int last = smallest - tokens;
    if (last < 0) {
        lengths.mistake(fmt::format("expected room for {} new tokens, got a ring of {}", tokens, smallest));
        return entry.ignore_rest();
    }
    // A verify that flushes folds the records that it finds: there must be one.
    const int first_flush = is_verify(sweep.kernel) ? 1 : 0;
    sweep.fill = read_fills(entry.find("fill"), {.min = 0, .max = last});
    sweep.flush_fill = read_fills(entry.find("flush_fill"), {.min = first_flush, .max = last});
    const YamlCursor mixed = entry.find("mixed_flush_rows");
    sweep.mixed_flush_rows = read_flush_rows(mixed);
    if (mixed.present() && last < 1) {
        mixed.mistake(fmt::format("mixed phases need a buffer_length of at least {}", tokens + 1));
    }
    if (sweep.fill.empty() && sweep.flush_fill.empty() && sweep.mixed_flush_rows.empty()) {
        entry.mistake("expected at least one of fill, flush_fill and mixed_flush_rows");
    }
}

LinearSweep read_sweep(const YamlCursor& entry) {
    LinearSweep sweep;
    sweep.kernel = kSweepKernels[entry.at("form").choice_index(kSweepForms).value_or(0)];
    sweep.shape = read_shape(entry, sweep.kernel);
    const YamlCursor heads = entry.at("v_heads");
    sweep.v_heads = integers(heads, {.min = 1, .max = 1024});
    for (const int count : sweep.v_heads) {
        if (count % sweep.shape.k_heads != 0) {
            heads.mistake(
                fmt::format("expected multiples of k_heads = {}, got {}", sweep.shape.k_heads, count));
        }
    }
    sweep.batch = integers(entry.at("batch"), {.min = 1, .max = kMaxBatch});
    if (is_verify(sweep.kernel)) sweep.tokens = integers(entry.at("tokens"), {.min = 1, .max = kMaxTokens});
    if (has_ring(sweep.kernel)) read_ring(entry, sweep);
    if (sweep.kernel == Kernel::kLinearRecurrent) {
        const YamlCursor warm = entry.find("warm_batch");
        if (warm.present()) sweep.warm_batch = integers(warm, {.min = 1, .max = kMaxBatch});
    }
    return sweep;
}

void append_probe(std::vector<Case>& cases, Kernel probe, const YamlCursor& node) {
    if (!node.present()) return;
    const Bytes unit(probe == Kernel::kStreamAppend ? kAppendUnit : 16);
    const Bytes smallest = node.at("smallest").bytes(Sign::kPositive, unit);
    const YamlCursor end = node.at("largest");
    const Bytes largest = end.bytes(Sign::kPositive, smallest);
    if (smallest.value() % unit.value() != 0)
        node.mistake(fmt::format("expected sizes that are multiples of {} bytes", unit.value()));
    if (largest < smallest) end.mistake("expected no less than `smallest`");
    for (const Case& c : expand(probe, smallest, largest)) cases.push_back(c);
}

}  // namespace

std::vector<Case> expand(const LinearSweep& sweep) {
    std::vector<Case> cases;
    const auto add_batches = [&](Case c) {
        for (const int batch : sweep.batch) {
            c.batch = batch;
            if (!has_ring(c.kernel)) {
                add_once(cases, c);
                continue;
            }
            for (const Case& one : ring_cases(sweep, c)) add_once(cases, one);
        }
    };
    for (const int v_heads : sweep.v_heads) {
        Case c{.kernel = sweep.kernel, .shape = sweep.shape};
        c.shape.v_heads = v_heads;
        for (const int capacity : sweep.buffer_length) {
            for (const int tokens : sweep.tokens) {
                c.buffer_length = capacity;
                c.tokens = tokens;
                add_batches(c);
            }
        }
        c.l2 = L2State::kWarm;
        for (const int batch : sweep.warm_batch) {
            c.batch = batch;
            add_once(cases, c);
        }
    }
    return cases;
}

std::vector<Case> expand(Kernel probe, Bytes smallest, Bytes largest) {
    std::vector<Case> cases;
    for (Bytes size = smallest; size <= largest; size = size * 2)
        cases.push_back({.kernel = probe, .bytes = size});
    return cases;
}

std::vector<Case> load_grid(const std::string& file) {
    YamlReader reader;
    const YamlCursor root = reader.open(file, "calibration");
    std::vector<Case> cases;
    if (root.present()) {
        if (root.find("empty").boolean(false)) cases.push_back({.kernel = Kernel::kEmpty});
        append_probe(cases, Kernel::kStreamCopy, root.find("stream_copy"));
        append_probe(cases, Kernel::kStreamRead, root.find("stream_read"));
        append_probe(cases, Kernel::kStreamAppend, root.find("stream_append"));
        const YamlCursor linear = root.find("linear");
        if (linear.present()) {
            for (const YamlCursor& entry : linear.items(1)) {
                const LinearSweep sweep = read_sweep(entry);
                if (!reader.good()) continue;
                for (const Case& c : expand(sweep)) add_once(cases, c);
            }
        }
        if (cases.empty() && reader.good())
            root.mistake("expected at least one of linear, stream_copy, stream_read, stream_append, empty");
    }
    reader.finish();
    std::stable_sort(cases.begin(), cases.end(),
                     [](const Case& a, const Case& b) { return a.kernel < b.kernel; });
    // Groups in the order of their first case.
    for (auto first = cases.begin(); first != cases.end();) {
        first = std::stable_partition(first, cases.end(),
                                      [group = *first](const Case& c) { return same_group(group, c); });
    }
    return cases;
}

}  // namespace kvsim::calibrate
