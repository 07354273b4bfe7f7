// How an engine file says where states and KV lie.
#include "sim/config/experiment.hpp"
#include "tests/sim/config/support.hpp"
#include "tests/support/catch.hpp"

namespace kvsim {
namespace {

EngineMemory memory_of(const std::vector<Override>& overrides) {
    return load_experiment(kSteady, overrides).engine.memory;
}

std::string error_of(const std::string& path, const std::string& value) {
    return config_error([&] { load_experiment(kSteady, {{"engine", "sglang"}, {path, value}}); });
}

TEST_CASE("the committed engines keep states and KV by three rules") {
    const EngineMemory sglang = memory_of({{"engine", "sglang"}});
    CHECK(std::get<SplitPools>(sglang.pools) == SplitPools{0.9, 1, SlotCount::kShare, 1});
    CHECK(sglang.max_running_with_drafts == 48);
    const EngineMemory vllm = memory_of({{"engine", "vllm"}});
    CHECK(std::get<PagedPool>(vllm.pools) == PagedPool{16, false});
    CHECK(vllm.activations == ActivationRule::kPeak);
    CHECK(vllm.draft_records == DraftRecords::kBeside);
    const EngineMemory ideal = memory_of({{"engine", "ideal"}});
    CHECK(std::holds_alternative<BytePool>(ideal.pools));
    CHECK(ideal.fraction == 1.0);
}

TEST_CASE("the memory of an engine reads back as it was written") {
    const std::vector<std::vector<Override>> cases{
        {{"engine", "sglang"}, {"engine.memory.slots_per_request", "5"}, {"engine.memory.page_tokens", "64"}},
        {{"engine", "sglang"},
         {"engine.memory.slots", "running"},
         {"engine.memory.max_running_with_drafts", "7"}},
        {{"engine", "vllm"},
         {"engine.memory.aligned_prefix_cache", "true"},
         {"engine.memory.pool", "154.8 GB"}},
        {{"engine", "ideal"}, {"engine.memory.fraction", "0.123456789"}}};
    for (const std::vector<Override>& overrides : cases) {
        const TemporaryFolder folder;
        const Experiment e = load_experiment(kSteady, overrides);
        const Experiment back = load_experiment(folder.write("resolved.yaml", to_yaml(e)));
        CHECK(back.engine.memory == e.engine.memory);
    }
    CHECK(memory_of(cases[2]).pool == Bytes(154'800'000'000));
}

TEST_CASE("a prefix cache is read, and reads back as it was written") {
    CHECK_FALSE(load_experiment(kSteady, {{"engine", "sglang"}}).engine.prefix_cache);
    const Experiment e = load_experiment(
        kSteady, {{"engine", "sglang"},
                  {"engine.memory.slots_per_request", "5"},
                  {"engine.prefix_cache", "{snapshot_tokens: 512, slots_in_use: 3, at_preemption: true}"}});
    CHECK(e.engine.prefix_cache == PrefixCacheSpec{512, 3, true});
    const TemporaryFolder folder;
    const Experiment back = load_experiment(folder.write("resolved.yaml", to_yaml(e)));
    CHECK(back.engine.prefix_cache == e.engine.prefix_cache);
}

TEST_CASE("mistakes in a prefix cache are named") {
    const auto error = [](const std::vector<Override>& overrides) {
        return config_error([&] { load_experiment(kSteady, overrides); });
    };
    CHECK_THAT(error_of("engine.prefix_cache", "{slots_in_use: 1}"),
               ContainsSubstring("engine.prefix_cache.snapshot_tokens"));
    CHECK_THAT(error_of("engine.prefix_cache", "{snapshot_tokens: 0}"),
               ContainsSubstring("engine.prefix_cache.snapshot_tokens: expected"));
    CHECK_THAT(error_of("engine.prefix_cache", "{snapshot_tokens: 256, slots: 1}"),
               ContainsSubstring("unknown key"));
    CHECK_THAT(error_of("engine.prefix_cache", "{snapshot_tokens: 256, at_preemption: 1}"),
               ContainsSubstring("engine.prefix_cache.at_preemption: expected"));
    // Without a cache there is nowhere to leave a state.
    CHECK_THAT(error_of("engine.prefix_cache", "{at_preemption: true}"),
               ContainsSubstring("engine.prefix_cache.snapshot_tokens"));
    // One slot is set aside per request.
    CHECK_THAT(error_of("engine.prefix_cache", "{snapshot_tokens: 256, slots_in_use: 2}"),
               ContainsSubstring("engine.prefix_cache.slots_in_use: expected"));
    CHECK_THAT(error({{"engine", "sglang"},
                      {"engine.memory.slots", "running"},
                      {"engine.prefix_cache", "{snapshot_tokens: 256}"}}),
               ContainsSubstring("engine.prefix_cache: expected memory.slots: share"));
    CHECK_THAT(error({{"engine", "vllm"}, {"engine.prefix_cache", "{snapshot_tokens: 16}"}}),
               ContainsSubstring("engine.prefix_cache: expected memory.aligned_prefix_cache: true"));
}

TEST_CASE("mistakes in the memory of an engine are named") {
    CHECK_THAT(error_of("engine.memory.fraction", "0"),
               ContainsSubstring("engine.memory.fraction: expected"));
    CHECK_THAT(error_of("engine.memory.pools", "pagd"), ContainsSubstring("paged"));
    CHECK_THAT(error_of("engine.memory.state_ration", "1"), ContainsSubstring("did you mean `state_ratio`"));
    CHECK_THAT(error_of("engine.memory.pool", "100"), ContainsSubstring("engine.memory.pool"));  // no unit
    // Keys of another rule are unknown to this one.
    CHECK_THAT(error_of("engine.memory.aligned_prefix_cache", "true"), ContainsSubstring("unknown key"));
    CHECK_THAT(config_error([] {
                   load_experiment(kSteady, {{"engine.memory.slots", "running"},
                                             {"engine.memory.slots_per_request", "3"}});
               }),
               ContainsSubstring("expected share, because 3 slots per request"));
}

}  // namespace
}  // namespace kvsim
