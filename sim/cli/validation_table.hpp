// What `kvsim fit` and `kvsim validate` print.
#pragma once

#include <span>
#include <string>

#include "sim/cost/validate.hpp"

namespace kvsim {

// One line per kernel and one per part of it: errors in per cent on the rows that the fit saw and on those
// that it never saw.
std::string validation_table(std::span<const ValidationRow> rows);

}  // namespace kvsim
