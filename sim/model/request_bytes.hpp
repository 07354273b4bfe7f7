// What a request occupies beside the weights, over all layers of a model. Applied to a model of rank_model(),
// they give what it occupies on one rank. A model without layers of a kind needs nothing for them.
//
// Formulas of state and records: kernels/traffic_linear.hpp.
#pragma once

#include "sim/base/units.hpp"
#include "sim/model/model.hpp"

namespace kvsim {

Bytes state_bytes_per_request(const ModelSpec& model, StateFormat state);  // one copy
Bytes conv_bytes_per_request(const ModelSpec& model);  // channels x (kernel - 1), bf16, one copy
// So many records in every linear layer.
Bytes ring_bytes_per_request(const ModelSpec& model, int ring_capacity,
                             RecordFormat records = RecordFormat::kBf16);

// bf16: K and V of every grouped-query layer, the shared latent of every MLA layer.
Bytes kv_bytes_per_token(const ModelSpec& model);
// The same of the MTP module's layers, which speculation needs on top.
Bytes mtp_kv_bytes_per_token(const ModelSpec& model);

}  // namespace kvsim
