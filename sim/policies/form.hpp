// Form policies: in which form of the kernels a replica serves its decode rows.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "kernels/shapes.hpp"
#include "sim/memory/capacity.hpp"
#include "sim/policies/flush.hpp"

namespace kvsim {

// The form of the kernel that is launched, and the policy that keeps its buffers; null when there are none.
struct DecodeForm {
    Form form = Form::kRecurrent;
    std::unique_ptr<FlushPolicy> flush;
};

struct FormPolicyEntry {
    std::string_view name;
    std::string_view help;
    DecodeForm (*make)(const LinearServing& linear);
};

// Every form that requests can be served in, the baseline first.
std::span<const FormPolicyEntry> form_policies();

// The form that `linear` asks for. Throws ConfigError naming the choices when it is not in the table.
DecodeForm make_decode_form(const LinearServing& linear);

}  // namespace kvsim
