// Which program this is.
#pragma once

#include <string_view>

namespace kvsim {

std::string_view version();  // as in CMakeLists.txt
std::string_view
git_revision();  // of the source when it was built, with -dirty when it had changes; else "unknown"

}  // namespace kvsim
