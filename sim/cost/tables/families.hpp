// The families of operators that published tables cover, and what belongs to each: a table, or a fit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/cost/fit.hpp"
#include "sim/cost/tables/attention_law.hpp"
#include "sim/cost/tables/gemm_law.hpp"
#include "sim/cost/tables/moe_law.hpp"
#include "sim/cost/tables/stream_laws.hpp"

namespace kvsim {

// One slot per family. Names are those of published.yaml.
template <template <class Law> class Slot>
struct Families {
    Slot<GemmLaw> gemm_bf16;
    Slot<GemmLaw> gemm_fp8;
    Slot<MoeLaw> moe_bf16;
    Slot<AttentionDecodeLaw> attention_decode;
    Slot<AttentionPrefillLaw> attention_prefill;
    Slot<PackedDecodeLaw> packed_decode;
    Slot<FusedChunkLaw> fused_chunk;
    Slot<StagedChunkLaw> staged_chunk;
    Slot<ConvUpdateLaw> conv_update;
    Slot<ConvUpdateLaw> conv_update_trtllm;
    Slot<ConvPrefillLaw> conv_prefill;
    Slot<AllReduceLaw> all_reduce;
};

// visit(name, slot of every argument...) for each family, in order.
template <class Visit, class... F>
void for_each_family(Visit&& visit, F&... f) {
    visit("gemm_bf16", f.gemm_bf16...);
    visit("gemm_fp8", f.gemm_fp8...);
    visit("moe_bf16", f.moe_bf16...);
    visit("attention_decode", f.attention_decode...);
    visit("attention_prefill", f.attention_prefill...);
    visit("packed_decode", f.packed_decode...);
    visit("fused_chunk", f.fused_chunk...);
    visit("staged_chunk", f.staged_chunk...);
    visit("conv_update", f.conv_update...);
    visit("conv_update_trtllm", f.conv_update_trtllm...);
    visit("conv_prefill", f.conv_prefill...);
    visit("all_reduce", f.all_reduce...);
}

// ---- tables ----

template <class Work>
struct TableRow {
    Work work;
    double us = 0.0;
    int group = 0;  // shapes alike but for their size, numbered by first appearance
    Place place;
};

// Odd groups judge a fit that saw the even ones alone.
inline bool held_out(int group) {
    return group % 2 == 1;
}

template <class Law>
struct Table {
    std::string kernel;  // as the rows call it
    std::vector<TableRow<typename Law::Work>> rows;
};

struct PublishedTables {
    std::string folder;
    Families<Table> families;
};

// Reads the tables of a folder: gemm.csv, moe.csv, attention_decode.csv, attention_prefill.csv,
// gdn_decode.csv, gdn_prefill.csv, mamba2_conv.csv, allreduce.csv, of which some may be missing; other files
// are not looked at. Columns must be those of the table, in any order; times positive. Throws ConfigError
// with every mistake, and when there is no table at all.
//
// Not read, as they do not show what a kernel takes on the GPU: fp8_block products (bound by the host), fp8
// experts (below 2048 tokens slower than bf16), eager all-reduce, TensorRT-LLM's convolution over prompts.
PublishedTables load_published_tables(const std::string& folder);

// ---- fits ----

template <class LawT>
struct FamilyFit {
    using Law = LawT;
    std::string kernel;
    Law law;
    std::array<ValidRange, Law::kAxes.size()> range{};  // of the table, by axis
    ErrorSummary fitted, held_out;
    // Relative error that two thirds of the held-out rows of a regime stay below.
    std::array<double, kRegimeCount> sigma{};

    bool covers(const typename Law::Work& work) const {
        const auto at = Law::axes(work);
        for (std::size_t i = 0; i < at.size(); ++i) {
            if (!range[i].contains(at[i])) return false;
        }
        return true;
    }
};

template <class Law>
using OptionalFit = std::optional<FamilyFit<Law>>;

// Where tables come from, for the reader of a profile.
struct TableSource {
    std::string name, commit, licence;
};

struct PublishedFit {
    std::string origin;  // file or folder, for messages
    std::string device;  // name of a file of configs/devices
    TableSource source;
    Families<OptionalFit> families;
};

// Fits the law of every family that has a table. Throws ConfigError when one has too few rows or no held-out
// group.
PublishedFit fit_published(const PublishedTables& tables, const DeviceSpec& device, TableSource source);

// published.yaml (schema kvsim/published/1). Same fit, same text.
std::string to_yaml(const PublishedFit& fit);
// Reads published.yaml of a folder, or a file. Throws ConfigError with every mistake.
PublishedFit load_published(const std::string& folder_or_file);

// Errors of a fit on a table.
struct FamilyErrors {
    struct Row {
        Place place;
        bool held_out = false;
        double measured_us = 0.0;
        double predicted_us = 0.0;
    };
    std::string family;
    std::string kernel;
    ErrorSummary fitted, held_out;
    std::vector<Row> rows;
};
// Throws ConfigError when the fit lacks a family that has a table.
std::vector<FamilyErrors> validate_published(const PublishedTables& tables, const PublishedFit& fit,
                                             const DeviceSpec& device);

}  // namespace kvsim
