#include "sim/cost/linear_prices.hpp"

namespace kvsim {

namespace {

bool same(const LinearWork& a, const LinearWork& b) {
    const std::int64_t differences = (a.sequences ^ b.sequences) | (a.new_tokens ^ b.new_tokens) |
                                     (a.buffered_tokens ^ b.buffered_tokens) | (a.flushes ^ b.flushes) |
                                     (a.flushed_tokens ^ b.flushed_tokens);
    return differences == 0;
}

// Below 2^bits. Tokens mostly follow from rows, and flushes from what they fold.
std::size_t place_of(const LinearWork& w, int bits) {
    const auto part = [](std::int64_t n, std::uint64_t odd) { return static_cast<std::uint64_t>(n) * odd; };
    const std::uint64_t mixed = part(w.sequences, 0x9e3779b97f4a7c15U) ^
                                part(w.buffered_tokens, 0xbf58476d1ce4e5b9U) ^
                                part(w.flushed_tokens, 0x94d049bb133111ebU);
    return static_cast<std::size_t>(mixed >> (64 - bits));
}

}  // namespace

const LinearLaunchPrice& LinearPrices::at(Form form, const LinearWork& work) {
    std::vector<LinearLaunchPrice>& launches = launches_[static_cast<std::size_t>(form)];
    if (launches.empty()) launches.resize(std::size_t{1} << kLogLaunches);
    LinearLaunchPrice& launch = launches[place_of(work, kLogLaunches)];
    if (!same(launch.work, work)) launch = priced(form, work);
    return launch;
}

LinearLaunchPrice LinearPrices::priced(Form form, const LinearWork& work) const {
    const OperatorPrice price = pricer_.price(decode_operator(part_, form, work));
    LinearLaunchPrice launch{work, price.time, price.time, price.source};
    if (work.flushes > 0) {
        LinearWork plain = work;
        plain.flushes = 0;
        plain.flushed_tokens = 0;
        launch.unflushed = pricer_.price(decode_operator(part_, form, plain)).time;
    }
    return launch;
}

}  // namespace kvsim
