#include "sim/cost/least_squares.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "sim/base/check.hpp"

namespace kvsim {

namespace {

constexpr int kMaxIterations = 500;
constexpr double kDifferenceStep = 1e-5;  // of a logarithm: central differences are then good to about 1e-10
constexpr double kRelativeTolerance =
    1e-12;  // of the cost; a hundred times below what a rounded time carries

class Problem {
  public:
    Problem(std::span<const BoundedParameter> bounds, std::size_t count, const Residuals& residuals)
        : residuals_(residuals), count_(static_cast<Eigen::Index>(count)) {
        const auto n = static_cast<Eigen::Index>(bounds.size());
        low_.resize(n);
        high_.resize(n);
        start_.resize(n);
        for (Eigen::Index i = 0; i < n; ++i) {
            const BoundedParameter& b = bounds[static_cast<std::size_t>(i)];
            KVSIM_CHECK(0.0 < b.min && b.min <= b.initial && b.initial <= b.max,
                        "parameter {}: {} <= {} <= {}", i, b.min, b.initial, b.max);
            low_[i] = std::log(b.min);
            high_[i] = std::log(b.max);
            start_[i] = std::log(b.initial);
        }
    }

    const Eigen::VectorXd& start() const { return start_; }
    Eigen::VectorXd project(const Eigen::VectorXd& x) const { return x.cwiseMax(low_).cwiseMin(high_); }

    Eigen::VectorXd evaluate(const Eigen::VectorXd& x) const {
        const Eigen::VectorXd p = x.array().exp();
        Eigen::VectorXd r(count_);
        residuals_({p.data(), static_cast<std::size_t>(p.size())},
                   {r.data(), static_cast<std::size_t>(r.size())});
        KVSIM_CHECK(r.allFinite(), "a residual is not finite");
        return r;
    }

    Eigen::MatrixXd jacobian(const Eigen::VectorXd& x) const {
        Eigen::MatrixXd j(count_, x.size());
        for (Eigen::Index i = 0; i < x.size(); ++i) {
            Eigen::VectorXd up = x;
            Eigen::VectorXd down = x;
            up[i] += kDifferenceStep;
            down[i] -= kDifferenceStep;
            j.col(i) = (evaluate(up) - evaluate(down)) / (2.0 * kDifferenceStep);
        }
        return j;
    }

    // Parameters that sit on a bound and are pulled outwards do not move: without this the projected step of
    // the others would be that of a problem with more freedom than there is.
    void freeze_at_bounds(const Eigen::VectorXd& x, Eigen::MatrixXd& jacobian,
                          const Eigen::VectorXd& r) const {
        const Eigen::VectorXd gradient = jacobian.transpose() * r;
        for (Eigen::Index i = 0; i < x.size(); ++i) {
            const bool outwards =
                (x[i] <= low_[i] && gradient[i] > 0.0) || (x[i] >= high_[i] && gradient[i] < 0.0);
            if (outwards) jacobian.col(i).setZero();
        }
    }

  private:
    const Residuals& residuals_;
    Eigen::Index count_;
    Eigen::VectorXd low_, high_, start_;
};

}  // namespace

std::vector<double> least_squares(std::span<const BoundedParameter> parameters, std::size_t residual_count,
                                  const Residuals& residuals) {
    const Problem problem(parameters, residual_count, residuals);
    Eigen::VectorXd x = problem.start();
    Eigen::VectorXd r = problem.evaluate(x);
    double damping = 1e-2;
    for (int iteration = 0; iteration < kMaxIterations; ++iteration) {
        Eigen::MatrixXd j = problem.jacobian(x);
        problem.freeze_at_bounds(x, j, r);
        const Eigen::MatrixXd normal = j.transpose() * j;
        const Eigen::VectorXd gradient = j.transpose() * r;
        bool improved = false;
        double gain = 0.0;
        while (!improved && damping < 1e12) {
            // The floor keeps a parameter without influence where it is instead of letting the system go
            // singular.
            const Eigen::VectorXd diagonal = normal.diagonal().array() + 1e-12;
            const Eigen::MatrixXd damped = normal + damping * Eigen::MatrixXd(diagonal.asDiagonal());
            const Eigen::VectorXd next = problem.project(x - damped.ldlt().solve(gradient));
            const Eigen::VectorXd next_r = problem.evaluate(next);
            if (next_r.squaredNorm() < r.squaredNorm()) {
                gain = r.squaredNorm() - next_r.squaredNorm();
                x = next;
                r = next_r;
                damping = std::max(damping * 0.2, 1e-12);
                improved = true;
            } else {
                damping *= 4.0;
            }
        }
        if (!improved || gain <= kRelativeTolerance * r.squaredNorm()) break;
    }
    const Eigen::VectorXd p = x.array().exp();
    return {p.data(), p.data() + p.size()};
}

}  // namespace kvsim
