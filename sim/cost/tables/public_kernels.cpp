#include "sim/cost/tables/public_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "sim/cost/tables/csv_table.hpp"

namespace kvsim {

namespace {

constexpr std::int64_t kVerifiedTokens = 5;
constexpr std::int64_t kMostRows = 1 << 20;  // of a launch, and records of a ring

struct NamedKernel {
    std::string_view family, prefix, name;
    Form form;
};
// SGLang's, Triton.
constexpr NamedKernel kKernels[] = {{"gdn", "sgl_packed", "sglang_packed", Form::kRecurrent},
                                    {"gdn", "sgl_replay_L", "sglang_replay", Form::kBuffered},
                                    {"spec", "sgl_verify_inter", "sglang_verify", Form::kVerifyStored}};

const NamedKernel* kernel_of(std::string_view family, std::string_view kernel) {
    for (const NamedKernel& k : kKernels) {
        if (family == k.family && kernel.starts_with(k.prefix)) return &k;
    }
    return nullptr;
}

std::optional<StateFormat> state_format(std::string_view word) {
    if (word == "f32") return StateFormat::kFp32;
    if (word == "bf16") return StateFormat::kBf16;
    return std::nullopt;
}

// What the rows of a buffered launch hold.
bool set_phase(ProfileRow& row, std::string_view phase) {
    const std::int64_t length = *row.buffer_length;
    const std::int64_t batch = *row.batch;
    row.flush_rows = 0;
    if (phase == "mid") {
        row.fill = length / 2;
    } else if (phase == "last" || phase == "flush") {
        row.fill = length - 1;
        if (phase == "flush") row.flush_rows = batch;
    } else if (phase == "mixed") {
        row.buffered_tokens = batch * (length - 1) / 2;
        row.flush_rows = batch / length;
        return true;
    } else {
        return false;
    }
    row.buffered_tokens = batch * *row.fill;
    return true;
}

}  // namespace

Profile load_public_kernels(const std::string& file, const Profile& probes) {
    std::vector<Mistake> mistakes;
    const CsvTable csv(file,
                       {"family", "kernel", "heads", "state_dtype", "batch", "phase", "buffer_length",
                        "time_us", "compulsory_bytes", "gb_per_s"},
                       mistakes);
    Profile profile;
    profile.folder = file;
    for (const MeasuredRow& m : probes.rows) {
        if (!is_linear(m.row)) profile.rows.push_back(m);
    }
    const auto unknown = [&](std::size_t row, std::string_view column) {
        mistakes.push_back(profile_mistake(file, csv.place(row).line, column,
                                           fmt::format("unknown value `{}`", csv.text(row, column))));
    };
    for (std::size_t i = 0; i < csv.rows(); ++i) {
        const NamedKernel* kernel = kernel_of(csv.text(i, "family"), csv.text(i, "kernel"));
        if (kernel == nullptr || csv.text(i, "heads") != "16x32") continue;
        ProfileRow row;
        row.kernel = kernel->name;
        row.family = Family::kGdn;
        row.form = kernel->form;
        row.k_heads = 16;
        row.v_heads = 32;
        row.k_dim = 128;
        row.v_dim = 128;
        row.state_dtype = state_format(csv.text(i, "state_dtype"));
        if (!row.state_dtype) unknown(i, "state_dtype");
        row.batch = csv.positive_integer(i, "batch", kMostRows);
        row.tokens = kernel->form == Form::kVerifyStored ? kVerifiedTokens : 1;
        row.l2 = L2State::kCold;
        row.time_us = csv.positive(i, "time_us");
        if (kernel->form == Form::kBuffered) {
            row.records = RecordFormat::kBf16;
            row.buffer_length = csv.positive_integer(i, "buffer_length", kMostRows);
            if (!set_phase(row, csv.text(i, "phase"))) unknown(i, "phase");
        }
        profile.rows.push_back({std::move(row), csv.place(i)});
    }
    if (mistakes.empty() && std::ranges::none_of(profile.rows, is_linear, &MeasuredRow::row))
        mistakes.push_back(profile_mistake(file, 0, "", "expected rows of SGLang's kernels, got none"));
    if (!mistakes.empty()) throw ConfigError(std::move(mistakes));
    return profile;
}

}  // namespace kvsim
