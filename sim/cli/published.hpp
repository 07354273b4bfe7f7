// What `kvsim fit-tables` and `kvsim validate --tables` share.
#pragma once

#include <string>
#include <vector>

#include "sim/cost/tables/families.hpp"

namespace kvsim {

// A file of configs/devices by name, or a path. Throws ConfigError.
DeviceSpec load_device(const std::string& name);

// One line per family: errors in per cent on the groups that the fit saw and on those that it never saw.
std::string published_table(const std::vector<FamilyErrors>& errors);

// CSV: family, file, line, held_out, measured_us, predicted_us; one line per row of the tables.
std::string published_rows(const std::vector<FamilyErrors>& errors);

}  // namespace kvsim
