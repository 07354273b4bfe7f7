// Runs decode steps of rows that speculate, for instructions to be counted: sampled_rows_steps FORM DRAFTS
// ROWS STEPS. Requests of 256 tokens follow one another in every slot, so joining and leaving are counted
// too.
#include <fmt/format.h>

#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "sim/serving/sampled_rows.hpp"

namespace kvsim {
namespace {

class ConstantPricer final : public StepPricer {
  public:
    StepPrice price(const StepShape&) const override {
        StepPrice price;
        price.time = time_from_us(1000.0);
        return price;
    }
};

struct Case {
    Form form = Form::kRecurrent;
    int drafts = 0;
    int half_context = 0;
    int rows = 0;
    int steps = 0;
};

std::int64_t run(const Case& c) {
    const ConstantPricer pricer;
    SampledRowsParts parts;
    parts.speculation = {.policy = "static", .drafts = c.drafts, .acceptance = {.rates = {0.8}}};
    if (c.half_context > 0) parts.speculation.acceptance.half_context = c.half_context;
    parts.linear = {.form = c.form, .buffer_length = 16, .drafts = c.drafts};
    parts.page_tokens = 16;
    parts.pricer = &pricer;
    const auto batch = make_sampled_rows(parts);
    std::uint64_t requests = 0;
    Time now;
    const auto start = [&](Slot slot) {
        const auto context = static_cast<std::int64_t>(512 + requests * 37 % 512);
        batch->join(
            {.slot = slot, .context = context, .remaining = 256, .last_token = now, .request = requests});
        ++requests;
    };
    for (int i = 0; i < c.rows; ++i) start(static_cast<Slot>(i));
    std::vector<TokenGap> gaps;
    std::vector<Slot> finished;
    std::int64_t tokens = 0;
    for (int step = 0; step < c.steps; ++step) {
        StepShape shape;
        gaps.clear();
        finished.clear();
        batch->form_step(shape, {});
        now += pricer.price(shape).time;
        tokens += batch->end_step(now, gaps, finished);
        for (const Slot slot : finished) start(slot);
    }
    return tokens;
}

}  // namespace
}  // namespace kvsim

int main(int argc, char** argv) {
    const std::span<char*> words(argv, static_cast<std::size_t>(argc));
    if (words.size() != 6) return 2;
    const bool buffered = std::string_view(words[1]) == "buffered";
    const kvsim::Case c{buffered ? kvsim::Form::kBuffered : kvsim::Form::kRecurrent, std::atoi(words[2]),
                        std::atoi(words[3]), std::atoi(words[4]), std::atoi(words[5])};
    fmt::print("{} tokens\n", kvsim::run(c));
    return 0;
}
