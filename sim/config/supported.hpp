// What configurations may name today: the readers accept these words alone, `kvsim list` prints them.
#pragma once

#include <array>
#include <string_view>

#include "kernels/shapes.hpp"

namespace kvsim {

// Only GDN layers have parameter formulas and kernels, and only with an fp32 state.
inline constexpr std::array<std::string_view, 1> kSupportedFamilies{name(Family::kGdn)};
inline constexpr std::array<std::string_view, 1> kSupportedStateFormats{name(StateFormat::kFp32)};
inline constexpr std::array<Form, 2> kSupportedForms{Form::kRecurrent, Form::kBuffered};

}  // namespace kvsim
