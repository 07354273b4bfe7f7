// Few physical parameters per kernel, fitted to measured profiles, with the range in which they hold.
#pragma once
// (contract for the other parts; the members are the fit's own business)

#include <memory>
#include <string>
#include <vector>

#include "kernels/shapes.hpp"
#include "sim/base/units.hpp"
#include "sim/cost/step_shape.hpp"

namespace kvsim {

struct TimedSource {
    Time time;
    Source source = Source::kFitted;
};

}  // namespace kvsim
