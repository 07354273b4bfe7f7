#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <tuple>

#include "sim/cost/tables/csv_table.hpp"
#include "sim/cost/tables/families.hpp"
#include "sim/cost/tables/routing.hpp"

namespace kvsim {

namespace {

constexpr double kUsPerMs = 1e3;
// How the tables were timed: products with six sets of weights in turn, all else with one set of buffers.
constexpr Rotation kGemmRotation = 6;
constexpr Rotation kOneSet = 1;

// Numbers groups by first appearance.
template <class Key>
class Groups {
  public:
    int operator()(const Key& key) {
        return numbers_.try_emplace(key, static_cast<int>(numbers_.size())).first->second;
    }

  private:
    std::map<Key, int> numbers_;
};

class Loader {
  public:
    explicit Loader(const std::string& folder) : folder_(folder) { tables_.folder = folder; }

    PublishedTables load() {
        gemm();
        moe();
        attention_decode();
        attention_prefill();
        gdn_decode();
        gdn_prefill();
        mamba2_conv();
        all_reduce();
        if (!mistakes_.empty()) throw ConfigError(std::move(mistakes_));
        if (files_ == 0)
            throw ConfigError(
                profile_mistake(folder_, 0, "", "expected published tables such as gemm.csv, got none"));
        return std::move(tables_);
    }

  private:
    // Calls read(table) when the file is there.
    template <class Read>
    void file(const char* name, std::vector<std::string_view> columns, Read&& read) {
        const std::filesystem::path path = std::filesystem::path(folder_) / name;
        if (!std::filesystem::exists(path)) return;
        ++files_;
        read(CsvTable(path.string(), std::move(columns), mistakes_));
    }

    template <class Law>
    static void add(Table<Law>& table, const CsvTable& csv, std::size_t row, typename Law::Work work,
                    int group) {
        if (table.rows.empty()) table.kernel = csv.text(row, "kernel_source");
        table.rows.push_back(
            {std::move(work), csv.positive(row, "latency") * kUsPerMs, group, csv.place(row)});
    }

    // A word of a column that decides how a row is read.
    void unknown_word(const CsvTable& csv, std::size_t row, std::string_view column) {
        const Place place = csv.place(row);
        mistakes_.push_back(profile_mistake(place.file, place.line, column,
                                            fmt::format("unknown value `{}`", csv.text(row, column))));
    }

    void gemm() {
        file("gemm.csv", {"gemm_dtype", "m", "n", "k", "latency", "kernel_source"}, [&](const CsvTable& csv) {
            std::map<std::string, Groups<std::pair<std::int64_t, std::int64_t>>, std::less<>> groups;
            for (std::size_t i = 0; i < csv.rows(); ++i) {
                const std::string dtype(csv.text(i, "gemm_dtype"));
                if (dtype == "fp8_block") continue;
                if (dtype != "bfloat16" && dtype != "fp8") {
                    unknown_word(csv, i, "gemm_dtype");
                    continue;
                }
                const bool bf16 = dtype == "bfloat16";
                const GemmWork work{csv.positive_integer(i, "m"), csv.positive_integer(i, "n"),
                                    csv.positive_integer(i, "k"),
                                    bf16 ? MatrixFormat::kBf16 : MatrixFormat::kFp8, kGemmRotation};
                auto& table = bf16 ? tables_.families.gemm_bf16 : tables_.families.gemm_fp8;
                add(table, csv, i, work, groups[dtype]({work.n, work.k}));
            }
        });
    }

    static int small(const CsvTable& csv, std::size_t row, std::string_view column, int most = 1 << 24) {
        return static_cast<int>(csv.positive_integer(row, column, most));
    }

    void moe() {
        file("moe.csv",
             {"moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
              "moe_ep_size", "distribution", "latency", "kernel_source"},
             [&](const CsvTable& csv) {
                 Groups<std::tuple<int, int, int, int, int, int>> groups;
                 for (std::size_t i = 0; i < csv.rows(); ++i) {
                     if (csv.text(i, "moe_dtype") == "bfloat16") moe_row(csv, i, groups);
                 }
             });
    }

    void moe_row(const CsvTable& csv, std::size_t i,
                 Groups<std::tuple<int, int, int, int, int, int>>& groups) {
        const std::string_view distribution = csv.text(i, "distribution");
        const bool even = distribution == "balanced";
        if (!even && distribution != "power_law_1.2") return unknown_word(csv, i, "distribution");
        const int tp = small(csv, i, "moe_tp_size");
        const int ep = small(csv, i, "moe_ep_size");
        const int inter = small(csv, i, "inter_size");
        MoeWork work;
        // Routing is drawn, in the worst case row by row.
        constexpr int kMostExperts = 1 << 12, kMostChosen = 1 << 6, kMostTokens = 1 << 18;
        work.shape = {small(csv, i, "hidden_size"), small(csv, i, "num_experts", kMostExperts),
                      small(csv, i, "topk", kMostChosen), inter / tp};
        work.tokens = csv.positive_integer(i, "num_tokens", kMostTokens);
        if (inter % tp != 0 || work.shape.experts % ep != 0 || work.shape.top_k > work.shape.experts)
            return unknown_word(csv, i, inter % tp != 0 ? "moe_tp_size" : "num_experts");
        const RankRouting routing = even ? balanced_routing(work.shape, work.tokens, ep)
                                         : power_law_routing(work.shape, work.tokens, ep, 1.2);
        work.distinct_experts = routing.distinct_experts;
        work.rows = routing.rows;
        // The experts of Nemotron 3 Nano and of its siblings with latents have relu2 and no gate: with three
        // matrices the times of these rows would mean more than the memory's peak rate.
        work.gated =
            !(work.shape.hidden == 2688 && inter == 1856) && !(work.shape.hidden == 2048 && inter == 5120);
        work.even = even;
        work.rotation = kOneSet;
        add(tables_.families.moe_bf16, csv, i, work,
            groups({work.shape.hidden, inter, work.shape.top_k, work.shape.experts, tp, ep}));
    }

    // Rows of the two attention tables; make(csv, row, shape, sequences, new tokens, earlier tokens) builds
    // the work.
    template <class Law, class Make>
    void attention(const char* name, Table<Law>& table, Make&& make) {
        file(name,
             {"kernel_source", "batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim",
              "attn_dtype", "kv_cache_dtype", "latency"},
             [&](const CsvTable& csv) {
                 Groups<std::tuple<int, int, int>> groups;
                 for (std::size_t i = 0; i < csv.rows(); ++i) {
                     if (csv.text(i, "kv_cache_dtype") != "bfloat16") continue;
                     const AttentionShape shape{small(csv, i, "num_heads"),
                                                small(csv, i, "num_key_value_heads"),
                                                small(csv, i, "head_dim")};
                     add(table, csv, i,
                         make(shape, csv.positive_integer(i, "batch_size"), csv.positive_integer(i, "isl"),
                              csv.natural(i, "step")),
                         groups({shape.q_heads, shape.kv_heads, shape.head_dim}));
                 }
             });
    }

    void attention_decode() {
        attention("attention_decode.csv", tables_.families.attention_decode,
                  [](const AttentionShape& shape, std::int64_t batch, std::int64_t isl, std::int64_t step) {
                      const std::int64_t context = isl + step;
                      return AttentionDecodeWork{shape, batch, batch * context, context, kOneSet};
                  });
    }

    void attention_prefill() {
        attention("attention_prefill.csv", tables_.families.attention_prefill,
                  [](const AttentionShape& shape, std::int64_t batch, std::int64_t isl, std::int64_t step) {
                      return AttentionPrefillWork{shape, batch, batch * isl, batch * step,
                                                  batch * (isl * step + isl * (isl + 1) / 2)};
                  });
    }

    static std::vector<std::string_view> gdn_columns() {
        return {"kernel_source", "phase",      "batch_size",  "seq_len",    "num_tokens", "d_model", "d_conv",
                "num_k_heads",   "head_k_dim", "num_v_heads", "head_v_dim", "model_name", "latency"};
    }

    LinearShape gdn_shape(const CsvTable& csv, std::size_t i) {
        return {Family::kGdn,
                small(csv, i, "num_k_heads"),
                small(csv, i, "num_v_heads"),
                small(csv, i, "head_k_dim"),
                small(csv, i, "head_v_dim"),
                StateFormat::kFp32};
    }

    void gdn_decode() {
        file("gdn_decode.csv", gdn_columns(), [&](const CsvTable& csv) {
            Groups<std::pair<int, int>> packed;
            Groups<std::int64_t> conv;
            for (std::size_t i = 0; i < csv.rows(); ++i) {
                const LinearShape shape = gdn_shape(csv, i);
                const std::int64_t batch = csv.positive_integer(i, "batch_size");
                const std::string_view kernel = csv.text(i, "kernel_source");
                if (kernel == "fused_recurrent_gated_delta_rule_packed_decode") {
                    add(tables_.families.packed_decode, csv, i, PackedDecodeWork{shape, batch, kOneSet},
                        packed({shape.k_heads, shape.v_heads}));
                } else if (kernel == "causal_conv1d_update") {
                    const ConvWork work{conv_channels(shape), small(csv, i, "d_conv"), batch, batch, kOneSet};
                    add(tables_.families.conv_update, csv, i, work, conv(work.channels));
                } else {
                    unknown_word(csv, i, "kernel_source");
                }
            }
        });
    }

    void gdn_prefill() {
        file("gdn_prefill.csv", gdn_columns(), [&](const CsvTable& csv) {
            Groups<std::pair<int, int>> chunk;
            Groups<std::int64_t> conv;
            for (std::size_t i = 0; i < csv.rows(); ++i) {
                const LinearShape shape = gdn_shape(csv, i);
                const std::int64_t batch = csv.positive_integer(i, "batch_size");
                const std::int64_t length = csv.positive_integer(i, "seq_len");
                const LinearPrefillWork work{shape, batch, batch * length, length};
                const std::string_view kernel = csv.text(i, "kernel_source");
                if (kernel == "chunk_gated_delta_rule_flashinfer") {
                    add(tables_.families.fused_chunk, csv, i, work, chunk({shape.k_heads, shape.v_heads}));
                } else if (kernel == "chunk_gated_delta_rule_triton") {
                    add(tables_.families.staged_chunk, csv, i, work, chunk({shape.k_heads, shape.v_heads}));
                } else if (kernel == "causal_conv1d_fn") {
                    const ConvWork c{conv_channels(shape), small(csv, i, "d_conv"), batch, batch * length,
                                     kOneSet};
                    add(tables_.families.conv_prefill, csv, i, c, conv(c.channels));
                } else {
                    unknown_word(csv, i, "kernel_source");
                }
            }
        });
    }

    void mamba2_conv() {
        file("mamba2_conv.csv",
             {"kernel_source", "phase", "batch_size", "seq_len", "num_tokens", "d_model", "d_state", "d_conv",
              "nheads", "head_dim", "n_groups", "chunk_size", "model_name", "latency"},
             [&](const CsvTable& csv) {
                 Groups<std::int64_t> groups;
                 for (std::size_t i = 0; i < csv.rows(); ++i) {
                     if (csv.text(i, "kernel_source") != "causal_conv1d_update") continue;
                     const std::int64_t channels =
                         csv.positive_integer(i, "nheads") * csv.positive_integer(i, "head_dim") +
                         2 * csv.positive_integer(i, "n_groups") * csv.positive_integer(i, "d_state");
                     const std::int64_t batch = csv.positive_integer(i, "batch_size");
                     add(tables_.families.conv_update_trtllm, csv, i,
                         ConvWork{channels, small(csv, i, "d_conv"), batch, batch, kOneSet},
                         groups(channels));
                 }
             });
    }

    void all_reduce() {
        file("allreduce.csv",
             {"kernel_source", "allreduce_dtype", "num_gpus", "message_size", "latency", "backend"},
             [&](const CsvTable& csv) {
                 constexpr double kBf16Bytes = 2.0;  // message_size counts elements
                 Groups<std::int64_t> groups;
                 for (std::size_t i = 0; i < csv.rows(); ++i) {
                     if (csv.text(i, "backend") != "vllm_graph") continue;
                     if (csv.text(i, "allreduce_dtype") != "bfloat16") {
                         unknown_word(csv, i, "allreduce_dtype");
                         continue;
                     }
                     const std::int64_t elements = csv.positive_integer(i, "message_size");
                     const AllReduceWork work{kBf16Bytes * static_cast<double>(elements),
                                              small(csv, i, "num_gpus")};
                     add(tables_.families.all_reduce, csv, i, work, groups(elements));
                 }
             });
    }

    std::string folder_;
    PublishedTables tables_;
    std::vector<Mistake> mistakes_;
    int files_ = 0;
};

}  // namespace

PublishedTables load_published_tables(const std::string& folder) {
    return Loader(folder).load();
}

}  // namespace kvsim
