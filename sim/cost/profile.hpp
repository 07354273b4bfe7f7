// A measured profile: the rows of every CSV file of a folder, each with the place where it stands.
//
// Reading is strict: the header must name exactly the columns of kernels/profile_columns.hpp, in any order;
// every cell must parse; and a row must hold what its kernel needs. All mistakes of all files are thrown
// together as one ConfigError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/profile_columns.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/law.hpp"

namespace kvsim {

struct MeasuredRow {
    ProfileRow row;
    Place place;
};

struct Profile {
    std::string folder;
    std::vector<MeasuredRow> rows;  // by file name, then by line
};

// A mistake in a profile. (Members are set one by one: g++ 12 takes the temporaries of an aggregate for
// uninitialised.)
inline Mistake profile_mistake(const std::string& file, int line, std::string_view column,
                               std::string message) {
    Mistake mistake;
    mistake.place.file = file;
    mistake.place.line = line;
    mistake.path = column;
    mistake.message = std::move(message);
    return mistake;
}

// Reads every *.csv of `folder`. Throws ConfigError; a folder without rows is a mistake too.
Profile load_profile(const std::string& folder);

// Why a fit never sees a row, which then judges it. Each is a value between others that are fitted, so that
// held-out rows tell how well a law interpolates along every axis that it claims to know.
struct HeldOut {
    bool batch = false;   // 24, 48, 96, 192, 384
    bool heads = false;   // 48 value heads
    bool length = false;  // rings of 8 and of 32 records
    bool tokens = false;  // 3 and 6 new tokens a row

    bool any() const { return batch || heads || length || tokens; }
};
HeldOut held_out_for(const ProfileRow& row);
inline bool held_out(const ProfileRow& row) {
    return held_out_for(row).any();
}

// Rows that a fit or a validation uses: timed with a cold L2 (the empty kernel has no L2 state to speak of).
// Not those of the append probe: a floor for figures, which no law describes.
bool usable(const ProfileRow& row);
bool is_linear(const ProfileRow& row);

// What a linear kernel's row launched; its required cells are there once the profile has been read.
LinearLaunch launch_of(const ProfileRow& row);

}  // namespace kvsim
