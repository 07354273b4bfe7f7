// Catch2 version 2 (Debian 12) and 3 (Ubuntu 24.04) behind one include; tests use no other Catch header.
#pragma once

#if KVSIM_CATCH_VERSION >= 3
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& text) {
    return Catch::Matchers::Contains(text);
}
#endif
