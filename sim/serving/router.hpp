// Which replica an arrival goes to.
#pragma once

#include <cstddef>

#include "sim/memory/serving_spec.hpp"

namespace kvsim {

class Router {
  public:
    Router(RouterRule rule, std::size_t replicas) : rule_(rule), replicas_(replicas) {}

    // `load(i)`: requests in the system of replica i. Of equal loads the first replica.
    template <class Load>
    std::size_t pick(const Load& load) {
        if (rule_ == RouterRule::kRoundRobin) {
            const std::size_t picked = next_;
            next_ = next_ + 1 == replicas_ ? 0 : next_ + 1;
            return picked;
        }
        std::size_t least = 0;
        for (std::size_t i = 1; i < replicas_; ++i) {
            if (load(i) < load(least)) least = i;
        }
        return least;
    }

  private:
    RouterRule rule_;
    std::size_t replicas_;
    std::size_t next_ = 0;
};

}  // namespace kvsim
