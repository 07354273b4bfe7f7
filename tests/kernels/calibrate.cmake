kvsim_test(test_profile_columns SOURCES test_profile_columns.cpp LINK kvsim_profile_columns)
kvsim_test(test_calibration_plan SOURCES test_calibration_plan.cpp test_row_check.cpp test_stored_numbers.cpp
           LINK kvsim_calibration_plan)
kvsim_test(test_sustained_plan SOURCES test_sustained_plan.cpp LINK kvsim_calibration_plan kvsim_model)
# What needs the toolkit's libraries, but no GPU.
if(TARGET kvsim_calibrate)
  kvsim_test(test_cupti_host SOURCES test_cupti_host.cpp LINK kvsim_cupti_host)
  kvsim_test(test_profile_writer SOURCES test_profile_writer.cpp LINK kvsim_calibrate)
  kvsim_test(test_sustained_writer SOURCES test_sustained_writer.cpp LINK kvsim_sustained)
endif()
