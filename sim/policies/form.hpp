// Form policies: in which form of the kernels a replica serves its decode rows, and with buffers of which
// length.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/shapes.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/policies/flush.hpp"

namespace kvsim {

// The policy that keeps the buffers, null when there are none, and the form of the kernels whose rings it
// fills. A policy that chooses may run a step in the recurrent form: it writes the work of whichever form its
// step has.
struct DecodeForm {
    Form form = Form::kRecurrent;
    std::unique_ptr<FlushPolicy> flush;
};

// What a policy that chooses may ask: the mean time of a decode step of `rows` rows, > 0, which all flush
// every `buffer_length` tokens in phases spread evenly. 1: the recurrent form.
class LengthTimes {
  public:
    virtual ~LengthTimes() = default;
    virtual Time step_time(int buffer_length, std::int64_t rows) const = 0;
};

struct FormPolicyEntry {
    std::string_view name;
    std::string_view help;
    // `times` outlives the policy; null only where nothing is chosen.
    DecodeForm (*make)(const LinearServing& linear, const LengthTimes* times);
};

// Every form that requests can be served in, the baseline first.
std::span<const FormPolicyEntry> form_policies();

// The form that `linear` asks for. Throws ConfigError naming the choices when it, or its flush policy, is not
// in the table.
DecodeForm make_decode_form(const LinearServing& linear, const LengthTimes* times = nullptr);

// Lengths that `buffer_length: auto` chooses among, as far as the ring holds them.
std::span<const int> automatic_lengths();

// Serves with that one of `lengths` which is fastest for the number of rows, 1 being the recurrent form;
// `flush` keeps the buffers in cycles of that length. Looks whenever the number of rows has changed, but
// stays with its choice unless another is faster by 0.2 %, and for `ring` steps after a change: a change to
// the recurrent form costs up to a tenth of a step, which some tens of steps pay back. A change to the
// recurrent form flushes every row in its first step; one to another length holds for a row from its next
// flush.
std::unique_ptr<FlushPolicy> make_chosen_length(std::vector<int> lengths, int ring,
                                                std::unique_ptr<FlushPolicy> flush, const LengthTimes& times);

// Rows as on a replica that has served `batch` of them for long: they have joined one after the other over a
// cycle, some cycles ago, and step 0 is next. Under fixed_length row i has floor(i m / batch) records.
void fill_buffers(FlushPolicy& flush, const LinearServing& linear, std::int64_t batch);

}  // namespace kvsim
