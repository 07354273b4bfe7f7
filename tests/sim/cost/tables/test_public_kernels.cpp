#include "sim/cost/tables/public_kernels.hpp"

#include <filesystem>
#include <fstream>

#include "sim/cost/fit.hpp"
#include "tests/sim/cost/synthetic_profile.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;

namespace {

const std::string kHeader =
    "family,kernel,heads,state_dtype,batch,phase,buffer_length,time_us,compulsory_bytes,gb_per_s\n";

Profile load(const std::string& rows) {
    const std::string file = (std::filesystem::temp_directory_path() / "kvsim_public_kernels.csv").string();
    std::ofstream(file) << kHeader << rows;
    return load_public_kernels(file, testing::synthetic_profile());
}

}  // namespace

TEST_CASE("phases of a published buffered kernel, row by row", "[public_kernels]") {
    const Profile profile = load(
        "gdn,sgl_packed,16x32,f32,64,,,72.7,1,1\n"
        "gdn,sgl_replay_L16_mid,16x32,f32,64,mid,16,43.2,1,1\n"
        "gdn,sgl_replay_L16_flush,16x32,f32,64,flush,16,100.3,1,1\n"
        "gdn,sgl_replay_L16_mixed,16x32,bf16,64,mixed,16,48.9,1,1\n"
        "spec,sgl_verify_inter,16x32,f32,8,,,32.7,1,1\n"
        "gdn,llama_cpp,16x32,f32,8,,,11.9,1,1\n"
        "limit,tiles_read,16x32,f32,8,,,5.8,1,1\n");
    std::vector<ProfileRow> linear;
    for (const MeasuredRow& m : profile.rows) {
        if (is_linear(m.row)) linear.push_back(m.row);
    }
    REQUIRE(linear.size() == 5);  // kernels without a place here, and limits, are left out
    CHECK(linear[0].form == Form::kRecurrent);
    CHECK(linear[0].time_us == Approx(72.7));
    const auto work = [&](std::size_t i) { return launch_of(linear[i]).work; };
    CHECK(work(1).buffered_tokens == 64 * 8);
    CHECK(work(1).flushes == 0);
    CHECK(work(2).buffered_tokens == 64 * 15);
    CHECK(work(2).flushes == 64);
    CHECK(work(2).flushed_tokens == 64 * 16);  // the new token is folded too
    CHECK(linear[3].state_dtype == StateFormat::kBf16);
    CHECK(work(3).buffered_tokens == 64 * 15 / 2);  // fills 0 to 15
    CHECK(work(3).flushes == 4);
    CHECK(work(4).new_tokens == 8 * 5);
    // The memory's rates come with them.
    CHECK(profile.rows.size() > linear.size());
}

TEST_CASE("unknown words are all named with their lines, and a table without any kernel is refused",
          "[public_kernels]") {
    CHECK_THROWS_WITH(load("gdn,sgl_replay_L16_odd,16x32,f32,64,odd,16,43.2,1,1\n"
                           "gdn,sgl_packed,16x32,fp32,64,,,72.7,1,1\n"),
                      ContainsSubstring(":2: phase: unknown value `odd`") &&
                          ContainsSubstring(":3: state_dtype: unknown value `fp32`"));
    CHECK_THROWS_WITH(load("limit,tiles_read,16x32,f32,8,,,5.8,1,1\n"), ContainsSubstring("got none"));
    CHECK_THROWS_WITH(load("gdn,sgl_replay_L16,16x32,f32,4,mid,4294967297,7,1,1\n"),
                      ContainsSubstring(":2: buffer_length: expected an integer from 0 to 1048576"));
}

TEST_CASE("the committed fit of published kernels says what the kernels took", "[public_kernels]") {
    const ProfileFit fit = load_fit(KVSIM_SOURCE_DIR "/profiles/h200/public_kernels.yaml");
    // Packed decode and the buffered kernel at half fill, 128 sequences, fp32: 139.97 and 78.89 us in the
    // table.
    const LinearShape layer{Family::kGdn, 16, 32, 128, 128, StateFormat::kFp32};
    CHECK(to_us(fit.linear_time({layer, Form::kRecurrent, {128, 128, 0, 0, 0}}).time) ==
          Approx(139.97).epsilon(0.05));
    CHECK(to_us(fit.linear_time({layer, Form::kBuffered, {128, 128, 128 * 8, 0, 0}}).time) ==
          Approx(78.89).epsilon(0.05));
}
