# Profile columns and the calibration plan: host only, so that machines without CUDA test them too.
kvsim_library(kvsim_profile_columns
  HEADERS profile_columns.hpp
  SOURCES profile_columns.cpp
  LINK kvsim_kernel_shapes fmt::fmt)

kvsim_library(kvsim_calibration_plan
  HEADERS calibrate/plan.hpp calibrate/grid.hpp calibrate/replay_rule.hpp calibrate/row_check.hpp
          calibrate/stored_numbers.hpp calibrate/sustained_plan.hpp
  SOURCES calibrate/plan.cpp calibrate/grid.cpp calibrate/replay_rule.cpp calibrate/row_check.cpp
          calibrate/stored_numbers.cpp calibrate/sustained_plan.cpp
  LINK kvsim_profile_columns kvsim_reference kvsim_base kvsim_yaml)
