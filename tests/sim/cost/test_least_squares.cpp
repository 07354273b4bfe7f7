#include "sim/cost/least_squares.hpp"

#include <array>
#include <cmath>

#include "sim/base/check.hpp"
#include "tests/support/catch.hpp"

using namespace kvsim;

TEST_CASE("least squares finds the parameters of a curved model", "[least_squares]") {
    // y = a exp(-b x), a = 3, b = 0.5, started far away.
    const std::array<BoundedParameter, 2> start{{{1.0, 1e-3, 1e3}, {5.0, 1e-3, 1e3}}};
    const std::vector<double> p = least_squares(start, 20, [](auto q, auto r) {
        for (std::size_t i = 0; i < r.size(); ++i) {
            const double x = static_cast<double>(i) * 0.25;
            r[i] = q[0] * std::exp(-q[1] * x) - 3.0 * std::exp(-0.5 * x);
        }
    });
    CHECK(p[0] == Approx(3.0).epsilon(1e-8));
    CHECK(p[1] == Approx(0.5).epsilon(1e-8));
}

TEST_CASE("least squares stops at a bound and still fits the rest", "[least_squares]") {
    // Minimum of (p - 10)^2 + (p q - 12)^2 over p <= 4: p = 4, q = 3.
    const std::array<BoundedParameter, 2> start{{{1.0, 0.1, 4.0}, {1.0, 0.1, 100.0}}};
    const std::vector<double> p = least_squares(start, 2, [](auto q, auto r) {
        r[0] = q[0] - 10.0;
        r[1] = q[0] * q[1] - 12.0;
    });
    CHECK(p[0] == Approx(4.0).epsilon(1e-12));
    CHECK(p[1] == Approx(3.0).epsilon(1e-6));
}

TEST_CASE("a parameter without influence stays where it is", "[least_squares]") {
    const std::array<BoundedParameter, 2> start{{{1.0, 0.1, 10.0}, {2.0, 0.1, 10.0}}};
    const std::vector<double> p = least_squares(start, 1, [](auto q, auto r) { r[0] = q[0] - 5.0; });
    CHECK(p[0] == Approx(5.0).epsilon(1e-8));
    CHECK(p[1] == Approx(2.0).epsilon(1e-8));
}

TEST_CASE("a start outside its bounds or a residual without value is a fault", "[least_squares]") {
    const std::array<BoundedParameter, 1> outside{{{20.0, 0.1, 10.0}}};
    CHECK_THROWS_AS(least_squares(outside, 1, [](auto, auto r) { r[0] = 0.0; }), InvariantError);
    const std::array<BoundedParameter, 1> inside{{{2.0, 0.1, 10.0}}};
    CHECK_THROWS_AS(least_squares(inside, 1, [](auto, auto r) { r[0] = std::nan(""); }), InvariantError);
}
