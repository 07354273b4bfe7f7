#include "sim/serving/admission.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/check.hpp"

namespace kvsim {

Admission::Admission(const SchedulerSpec& scheduler, std::int64_t drafts)
    : scheduler_(scheduler), drafts_(drafts) {
    KVSIM_CHECK(scheduler.ratio_steps >= 1 && scheduler.new_token_ratio >= scheduler.least_token_ratio &&
                    scheduler.least_token_ratio >= 0.0 && scheduler.watermark >= 0.0 && drafts >= 0,
                "ratio from {} to {} in {} steps, watermark {}, {} drafts", scheduler.new_token_ratio,
                scheduler.least_token_ratio, scheduler.ratio_steps, scheduler.watermark, drafts);
}

bool Admission::admits(const MemoryPool& pool, const AdmissionRequest& request) const {
    const std::int64_t held = pages(pool, request) - request.shared_pages;
    if (pool.requests() == 0) return pool.fits(held);
    const PoolSize& size = pool.size();
    auto spare =
        static_cast<std::int64_t>(std::floor(scheduler_.watermark * static_cast<double>(size.units)));
    if (scheduler_.admission == AdmissionRule::kEstimated) {
        const double decoding = std::ceil(new_token_ratio() * static_cast<double>(decoding_left_));
        const std::int64_t tokens = static_cast<std::int64_t>(decoding) + prefilling_left_ + request.left;
        spare += pool.pages(tokens) * size.units_per_page;
    }
    return pool.fits(held, spare);
}

double Admission::new_token_ratio() const {
    const double whole = scheduler_.new_token_ratio - scheduler_.least_token_ratio;
    const double decayed = whole * static_cast<double>(steps_) / static_cast<double>(scheduler_.ratio_steps);
    return std::max(scheduler_.new_token_ratio - decayed, scheduler_.least_token_ratio);
}

}  // namespace kvsim
