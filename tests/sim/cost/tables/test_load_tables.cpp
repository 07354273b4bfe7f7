// Reading published tables: what rows become, and what is refused.
#include <filesystem>
#include <fstream>

#include "sim/cost/tables/families.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

namespace fs = std::filesystem;

// An empty folder of its own for each test, gone afterwards.
class Folder {
  public:
    explicit Folder(const std::string& name) : path_(fs::path(KVSIM_BINARY_DIR) / ("tables_" + name)) {
        fs::remove_all(path_);
        fs::create_directories(path_);
    }
    ~Folder() { fs::remove_all(path_); }
    void write(const std::string& file, const std::string& text) const {
        std::ofstream(path_ / file) << text;
    }
    std::string path() const { return path_.string(); }

  private:
    fs::path path_;
};

std::string refusal(const Folder& folder) {
    try {
        load_published_tables(folder.path());
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

const std::string kGemm = "gemm_dtype,m,n,k,latency,kernel_source\n";

TEST_CASE("rows become works; groups count by first appearance") {
    const Folder folder("gemm");
    folder.write("gemm.csv",
                 "\xEF\xBB\xBF"
                 "m,n,k,gemm_dtype,latency,kernel_source\r\n"
                 "1,32,64,bfloat16,0.0025,lib\r\n"
                 "8,32,64,bfloat16,0.003,lib\r\n"
                 "1,64,64,bfloat16,0.004,lib\r\n"
                 "1,64,64,fp8,0.005,cutlass\r\n"
                 "1,128,128,fp8_block,0.09,host\r\n"
                 "2,32,64,bfloat16,0.0026,lib");
    const PublishedTables tables = load_published_tables(folder.path());
    const auto& rows = tables.families.gemm_bf16.rows;
    REQUIRE(rows.size() == 4);
    CHECK(tables.families.gemm_bf16.kernel == "lib");
    CHECK(rows[1].work.m == 8);
    CHECK(rows[1].work.rotation == 6);
    CHECK(rows[1].us == Approx(3.0));
    CHECK(rows[1].place.line == 3);
    CHECK(rows[0].group == 0);
    CHECK(rows[2].group == 1);
    CHECK(rows[3].group == 0);
    CHECK_FALSE(held_out(rows[3].group));
    CHECK(held_out(rows[2].group));
    REQUIRE(tables.families.gemm_fp8.rows.size() == 1);  // and no fp8_block
    CHECK(tables.families.gemm_fp8.rows[0].group == 0);
    CHECK(tables.families.moe_bf16.rows.empty());
}

TEST_CASE("experts of a rank: shapes per rank, balanced rows, relu2 experts without a gate") {
    const Folder folder("moe");
    folder.write(
        "moe.csv",
        "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,"
        "latency,kernel_source\n"
        "bfloat16,4,2048,512,8,256,2,1,balanced,0.05,triton\n"
        "bfloat16,64,2688,1856,6,128,1,4,balanced,0.2,triton\n"
        "fp8,4,2048,512,8,256,2,1,balanced,0.2,cutlass\n"
        "bfloat16,64,2048,512,8,256,1,1,power_law_1.2,0.2,triton\n");
    const auto& rows = load_published_tables(folder.path()).families.moe_bf16.rows;
    REQUIRE(rows.size() == 3);
    CHECK(rows[0].work.shape.intermediate == 256);
    CHECK(rows[0].work.distinct_experts == 32.0);
    CHECK(rows[0].work.rows == 32.0);
    CHECK(rows[0].work.gated);
    CHECK(rows[0].work.even);
    CHECK_FALSE(rows[1].work.gated);
    CHECK(rows[1].work.distinct_experts == 32.0);  // 128 of 4 ranks
    CHECK(rows[1].work.rows == 96.0);              // 384 pairs of 4 ranks
    CHECK_FALSE(rows[2].work.even);
    CHECK(rows[2].work.rows == Approx(512.0));
}

TEST_CASE(
    "context of a decode row is isl + step; all-reduce counts elements of two bytes, graph rows alone") {
    const Folder folder("rest");
    folder.write(
        "attention_decode.csv",
        "kernel_source,batch_size,isl,step,num_heads,num_key_value_heads,head_dim,attn_dtype,kv_cache_dtype,"
        "latency\nfa3,4,1,127,16,2,256,bfloat16,bfloat16,0.01\n");
    folder.write("allreduce.csv",
                 "kernel_source,allreduce_dtype,num_gpus,message_size,latency,backend\n"
                 "graph,bfloat16,4,128,0.0045,vllm_graph\neager,bfloat16,4,128,0.02,vllm_eager\n");
    const PublishedTables tables = load_published_tables(folder.path());
    REQUIRE(tables.families.attention_decode.rows.size() == 1);
    const AttentionDecodeWork& work = tables.families.attention_decode.rows[0].work;
    CHECK(work.sequences == 4);
    CHECK(work.context_sum == 512);
    CHECK(work.context_max == 128);
    REQUIRE(tables.families.all_reduce.rows.size() == 1);
    CHECK(tables.families.all_reduce.rows[0].work.bytes == 256.0);
    CHECK(tables.families.all_reduce.rows[0].work.ranks == 4);
}

TEST_CASE("every mistake of a table is told with its place") {
    const Folder folder("bad");
    folder.write("gemm.csv", kGemm +
                                 "bfloat16,1,32,64,nan,lib\n"
                                 "bfloat16,1,32,64,-0.1,lib\n"
                                 "bfloat16,0,32,64,0.1,lib\n"
                                 "bfloat16,1.5,32,64,0.1,lib\n"
                                 "int4,1,32,64,0.1,lib\n"
                                 "bfloat16,1,32,64,0.1\n"
                                 "bfloat16,1,32,64,1e-320,lib\n");
    const std::string file = folder.path() + "/gemm.csv";
    const std::string text = refusal(folder);
    CHECK_THAT(text,
               ContainsSubstring(file + ":2: latency: expected a number from 1e-09 to 1e+09, got `nan`"));
    CHECK_THAT(text,
               ContainsSubstring(file + ":3: latency: expected a number from 1e-09 to 1e+09, got `-0.1`"));
    CHECK_THAT(text, ContainsSubstring(file + ":4: m: expected a positive integer, got `0`"));
    CHECK_THAT(text, ContainsSubstring(file + ":5: m: expected an integer"));
    CHECK_THAT(text, ContainsSubstring(file + ":6: gemm_dtype: unknown value `int4`"));
    CHECK_THAT(text, ContainsSubstring(file + ":7: expected 6 cells, got 5"));
    CHECK_THAT(text, ContainsSubstring(file + ":8: latency: expected a number from 1e-09"));
}

TEST_CASE("routing is not drawn for more tokens and experts than a launch has") {
    const Folder folder("vast");
    folder.write("moe.csv",
                 "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
                 "distribution,latency,kernel_source\n"
                 "bfloat16,1099511627776,2048,512,8,256,1,1,power_law_1.2,0.2,triton\n"
                 "bfloat16,64,2048,512,8,16777216,1,1,power_law_1.2,0.2,triton\n");
    const std::string text = refusal(folder);
    CHECK_THAT(text, ContainsSubstring(":2: num_tokens: expected an integer from 0 to 262144"));
    CHECK_THAT(text, ContainsSubstring(":3: num_experts: expected an integer from 0 to 4096"));
}

TEST_CASE("unknown, missing and repeated columns are refused, and empty tables and folders") {
    const Folder folder("columns");
    folder.write("gemm.csv", "gemm_dtype,m,n,k,latencyy,m\nbfloat16,1,1,1,1,1\n");
    const std::string text = refusal(folder);
    CHECK_THAT(text, ContainsSubstring("latencyy: unknown column (did you mean `latency`?)"));
    CHECK_THAT(text, ContainsSubstring("m: column appears twice"));
    CHECK_THAT(text, ContainsSubstring("kernel_source: missing column"));

    const Folder empty("empty");
    CHECK_THAT(refusal(empty), ContainsSubstring("expected published tables such as gemm.csv, got none"));
    empty.write("gemm.csv", kGemm);
    CHECK_THAT(refusal(empty), ContainsSubstring("expected a header line and rows, got none"));
    empty.write("gemm.csv", "");
    CHECK_THAT(refusal(empty), ContainsSubstring("expected a header line and rows, got none"));
}

}  // namespace
}  // namespace kvsim
