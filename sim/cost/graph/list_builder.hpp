// Builds an operator list: every operator follows the one before it on its stream; fork and join cross
// streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/check.hpp"
#include "sim/cost/graph/operator.hpp"
#include "sim/cost/graph/operators.hpp"
#include "sim/cost/graph/parts.hpp"
#include "sim/model/parameters.hpp"

namespace kvsim {

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
    Product product(const WeightMatrix& m) const {
        return {m.rows, m.cols, bytes(m), matrix_format(format(m))};
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
        op.driver = driver_;
        if (last().has_value()) op.after.push_back(*last());
        if (pending_join_.has_value()) op.after.push_back(*pending_join_);
        pending_join_.reset();
        list_.push_back(std::move(op));
        last() = list_.size() - 1;
        return list_.back();
    }

    // What drives the operators that follow; tokens at first.
    void driven_by(Driver driver) { driver_ = driver; }
    // Operators in a row, all with that driver.
    void add_all(OperatorList operators, Driver driver) {
        const Driver before = std::exchange(driver_, driver);
        for (Operator& op : operators) add(std::move(op));
        driver_ = before;
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
        return add(element_wise_operator(name, rows * row_bytes));
    }
    // Activations [m, k] times a matrix [n, k].
    Operator& gemm(std::string_view name, std::int64_t m, const WeightMatrix& w, const PartWeights& weights) {
        return add(product_operator(name, m, weights.product(w)));
    }
    Operator& product(std::string_view name, std::int64_t m, const Product& p) {
        return add(product_operator(name, m, p));
    }

    OperatorList take() { return std::move(list_); }

  private:
    std::optional<std::size_t>& last() { return last_[static_cast<std::size_t>(stream_)]; }

    OperatorList list_;
    Stream stream_ = Stream::kMain;
    Driver driver_ = Driver::kTokens;
    std::array<std::optional<std::size_t>, 2> last_;
    std::optional<std::size_t> pending_join_;
};

// ---- parts of a layer, and of the ends of a pass ----

inline constexpr std::int64_t kValueBytes = 2;  // bf16 activations

// Whether sums of the ranks and the next norm run as one kernel, where nothing lies between them.
bool fused_norms(const StepContext& context);
// Residual add and norm.
void add_norm(ListBuilder& list, const StepContext& context, std::string_view name, std::int64_t tokens);

void add_linear_mixer(ListBuilder& list, const StepContext& context, const LinearMixer& mixer,
                      const StepShape& step);
void add_attention(ListBuilder& list, const StepContext& context, const Attention& mixer,
                   const StepShape& step);
// `tokens` of all ranks that share the FFN.
void add_ffn(ListBuilder& list, const StepContext& context, const Ffn& ffn, const StepShape& step,
             std::int64_t tokens);

void add_embedding(ListBuilder& list, const StepContext& context, std::int64_t tokens);
// The head, and logits of the whole vocabulary in fp32.
void add_logits(ListBuilder& list, const StepContext& context, std::int64_t rows);

}  // namespace kvsim
