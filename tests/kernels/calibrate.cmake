kvsim_test(test_profile_columns SOURCES test_profile_columns.cpp LINK kvsim_profile_columns)
kvsim_test(test_calibration_plan SOURCES test_calibration_plan.cpp test_row_check.cpp test_stored_numbers.cpp
           LINK kvsim_calibration_plan)
# What needs the toolkit's libraries, but no GPU.
if(TARGET kvsim_calibrate)
  kvsim_test(test_cupti_host SOURCES test_cupti_host.cpp LINK kvsim_cupti_host)
  kvsim_test(test_profile_writer SOURCES test_profile_writer.cpp LINK kvsim_calibrate)
endif()
