// What configurations may name today: the readers accept these words alone, `kvsim list` prints them.
#pragma once

#include <array>
#include <string_view>

#include "kernels/shapes.hpp"

namespace kvsim {

// `type` of a part of a model: linear mixers by their family, attention, FFNs.
inline constexpr std::array<std::string_view, 8> kPartTypeNames{name(Family::kGdn),
                                                                name(Family::kKda),
                                                                name(Family::kMamba2),
                                                                name(Family::kLightning),
                                                                "gqa",
                                                                "mla",
                                                                "dense",
                                                                "moe"};

// What has measured kernels.
inline constexpr std::array<std::string_view, 1> kSupportedStateFormats{name(StateFormat::kFp32)};
inline constexpr std::array<Form, 2> kSupportedForms{Form::kRecurrent, Form::kBuffered};

}  // namespace kvsim
