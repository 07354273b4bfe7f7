// Builds an operator list: every operator follows the one before it on its stream; fork and join cross
// streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/traffic_gemm.hpp"
#include "sim/base/check.hpp"
#include "sim/cost/graph/operator.hpp"
#include "sim/cost/graph/operators.hpp"
#include "sim/model/parameters.hpp"

namespace kvsim {

inline MatrixFormat matrix_format(const WeightFormat& f) {
    if (f.type == WeightType::kFp4) return MatrixFormat::kFp4;
    if (f.type == WeightType::kFp8) return f.block_rows > 0 ? MatrixFormat::kFp8Block : MatrixFormat::kFp8;
    return MatrixFormat::kBf16;
}

// The weights of a part, each to be taken by one operator: none can be forgotten, as finish() checks.
class PartWeights {
  public:
    PartWeights(std::vector<WeightMatrix> matrices, const ModelSpec& model)
        : matrices_(std::move(matrices)), taken_(matrices_.size(), false), model_(model) {}

    const WeightMatrix& take(std::string_view name) {
        for (std::size_t i = 0; i < matrices_.size(); ++i) {
            if (matrices_[i].name != name || taken_[i]) continue;
            taken_[i] = true;
            return matrices_[i];
        }
        KVSIM_CHECK(false, "no weight {} left to take", name);
        return matrices_.front();
    }
    // Bytes of a vector that a kernel reads; 0 when the part has none of that name.
    std::int64_t take_vector(std::string_view name) {
        for (const WeightMatrix& m : matrices_) {
            if (m.name == name) return bytes(take(name));
        }
        return 0;
    }
    const WeightFormat& format(const WeightMatrix& m) const {
        return model_.formats[static_cast<std::size_t>(m.group)];
    }
    std::int64_t bytes(const WeightMatrix& m) const {
        return matrix_bytes(m.rows, m.cols, format(m)).value();
    }

    void finish() const {
        for (std::size_t i = 0; i < taken_.size(); ++i) {
            KVSIM_CHECK(taken_[i], "no operator reads the weight {}", matrices_[i].name);
        }
    }

  private:
    std::vector<WeightMatrix> matrices_;
    std::vector<bool> taken_;
    const ModelSpec& model_;
};

class ListBuilder {
  public:
    Operator& add(Operator op) {
        op.stream = stream_;
        if (last().has_value()) op.after.push_back(*last());
        if (pending_join_.has_value()) op.after.push_back(*pending_join_);
        pending_join_.reset();
        list_.push_back(std::move(op));
        last() = list_.size() - 1;
        return list_.back();
    }

    // What follows runs on the second stream, once the main one has got here ...
    void fork() {
        KVSIM_CHECK(stream_ == Stream::kMain, "a fork of a fork");
        last_[1] = last_[0];
        stream_ = Stream::kSecond;
    }
    // ... and what follows this on the main one again, beside it ...
    void back() { stream_ = Stream::kMain; }
    // ... until both meet.
    void join() {
        if (last_[1] != last_[0]) pending_join_ = last_[1];
        stream_ = Stream::kMain;
    }

    Operator& element_wise(std::string_view name, std::int64_t rows, std::int64_t row_bytes) {
        return add(make(name, ElementWise{})).own(Owner::kActivations, rows * row_bytes);
    }
    // Activations [m, k] times a matrix [n, k].
    Operator& gemm(std::string_view name, std::int64_t m, const WeightMatrix& w, const PartWeights& weights) {
        return product(name, m, w.rows, w.cols, weights.bytes(w), weights.format(w));
    }
    Operator& product(std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
                      std::int64_t weight_bytes, const WeightFormat& format) {
        const GemmTraffic t = gemm_traffic(m, n, k);
        const MatrixFormat f = matrix_format(format);
        Operator op = make(name, GemmWork{m, n, k, f});
        if (f != MatrixFormat::kBf16) op.launches = 2;  // the input is quantised by a kernel of its own
        op.flops = t.flops;
        op.own(Owner::kWeights, weight_bytes).own(Owner::kActivations, t.activations);
        return add(std::move(op));
    }

    static Operator make(std::string_view name, Pricing pricing, std::int64_t launches = 1) {
        Operator op;
        op.name = name;
        op.launches = launches;
        op.pricing = std::move(pricing);
        return op;
    }

    OperatorList take() { return std::move(list_); }

  private:
    std::optional<std::size_t>& last() { return last_[static_cast<std::size_t>(stream_)]; }

    OperatorList list_;
    Stream stream_ = Stream::kMain;
    std::array<std::optional<std::size_t>, 2> last_;
    std::optional<std::size_t> pending_join_;
};

// ---- the parts of a layer ----

void add_linear_mixer(ListBuilder& list, const StepContext& context, const LinearMixer& mixer,
                      const StepShape& step);
void add_attention(ListBuilder& list, const StepContext& context, const Attention& mixer,
                   const StepShape& step);
// `tokens` of all ranks that share the FFN.
void add_ffn(ListBuilder& list, const StepContext& context, const Ffn& ffn, const StepShape& step,
             std::int64_t tokens);

}  // namespace kvsim
