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

// What has kernels; whether a GPU has been measured with one is its profile's to say.
inline constexpr std::array<std::string_view, 3> kSupportedStateFormats{
    name(StateFormat::kFp32), name(StateFormat::kBf16), name(StateFormat::kSplit)};
inline constexpr std::array<std::string_view, 2> kSupportedRecordFormats{name(RecordFormat::kBf16),
                                                                         name(RecordFormat::kFp32U)};

}  // namespace kvsim
