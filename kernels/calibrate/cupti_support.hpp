// Checked CUPTI calls.
#pragma once

#include <cupti_result.h>

#include <stdexcept>

namespace kvsim::calibrate {

// A CUPTI call that failed: place, call and CUPTI's own words. Measuring goes on without what CUPTI would
// have given.
class CuptiError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

void cupti_check(CUptiResult result, const char* call, const char* file, int line);
#define KVSIM_CUPTI_CALL(call) ::kvsim::calibrate::cupti_check((call), #call, __FILE__, __LINE__)

// A zeroed parameter block with its size filled in: CUPTI tells versions of a struct apart by it.
#define KVSIM_CUPTI_PARAMS(type, variable) \
    type variable{};                       \
    variable.structSize = type##_STRUCT_SIZE

}  // namespace kvsim::calibrate
