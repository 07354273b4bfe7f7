// Non-linear least squares with bounds, for fits of a few positive parameters.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace kvsim {

// A parameter that physics keeps positive and inside [min, max].
struct BoundedParameter {
    double initial = 1.0;
    double min = 1e-3;
    double max = 1e3;
};

// Writes the residuals of a parameter vector.
using Residuals = std::function<void(std::span<const double> parameters, std::span<double> residuals)>;

// Levenberg-Marquardt on the logarithms of the parameters, each step projected onto the bounds (Nocedal and
// Wright, Numerical Optimization, chapter 10). Deterministic: no randomness, no threads. Residuals must be
// finite inside the bounds.
std::vector<double> least_squares(std::span<const BoundedParameter> parameters, std::size_t residual_count,
                                  const Residuals& residuals);

}  // namespace kvsim
