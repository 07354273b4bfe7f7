// Published decode kernels of linear attention, timed cold on one H200, as a profile: so that the laws of our
// own kernels can be fitted to them too, and whole steps priced with either.
#pragma once

#include <string>

#include "sim/cost/profile.hpp"

namespace kvsim {

// The rows of a table with the columns family, kernel, heads, state_dtype, batch, phase, buffer_length,
// time_us, compulsory_bytes, gb_per_s that have a form here, of GDN with 16/32 heads: SGLang's packed decode
// (recurrent), its buffered kernel at every phase and length, and its verification with stored states at T =
// 5. `probes` gives the rows of the memory's rate and
// of the empty node, of the same GPU. Phases: `mid` reads half a ring, `last` and `flush` all but one record;
// in `mixed` fills are even over the rows and one of m rows flushes. Throws ConfigError with every mistake.
Profile load_public_kernels(const std::string& file, const Profile& probes);

}  // namespace kvsim
