#include "sim/serving/replica.hpp"

#include <algorithm>

#include "sim/base/check.hpp"

namespace kvsim {

Replica::Replica(std::span<const Arrival> arrivals, const ReplicaLimits& limits, DecodeForm form)
    : arrivals_(arrivals), limits_(limits), form_(std::move(form)), records_(arrivals.size()) {
    KVSIM_CHECK(limits.chunked_prefill_tokens >= 1 && limits.slots_per_request >= 1,
                "prefill of {} tokens, {} slots per request", limits.chunked_prefill_tokens,
                limits.slots_per_request);
    queue_.reserve(arrivals.size());
}

std::int64_t Replica::reservation(std::size_t request) const {
    return arrivals_[request].prompt_tokens + arrivals_[request].output_tokens;
}

std::optional<Limit> Replica::arrive(std::size_t request) {
    const Arrival& arrival = arrivals_[request];
    KVSIM_CHECK(arrival.prompt_tokens >= 1 && arrival.output_tokens >= 1, "request {} of {} + {} tokens",
                request, arrival.prompt_tokens, arrival.output_tokens);
    std::optional<Limit> limit;
    if (limits_.slots_per_request > limits_.state_slots) {
        limit = Limit::kStateSlots;
    } else if (reservation(request) > limits_.kv_tokens) {
        limit = Limit::kKvTokens;
    } else if (limits_.max_running < 1) {
        limit = Limit::kMaxRunning;
    }
    records_[request].state = limit ? RequestState::kRejected : RequestState::kQueued;
    if (!limit) queue_.push_back(request);
    return limit;
}

const StepShape* Replica::begin_step(Time now) {
    KVSIM_CHECK(!in_step_, "a step began at {} ps while another ran", now.value());
    shape_ = {};
    chunks_.clear();
    form_prefill(now);
    if (chunks_.empty()) {
        if (rows_ == 0) {
            // Invariant 6: an idle replica holds nothing, so the head of the queue would fit.
            KVSIM_CHECK(in_system() == 0, "idle at {} ps with {} requests in the system", now.value(),
                        in_system());
            return nullptr;
        }
        form_decode();
    }
    in_step_ = true;
    return &shape_;
}

void Replica::end_step(Time now, StepTotals& totals) {
    KVSIM_CHECK(in_step_, "a step ended at {} ps that had not begun", now.value());
    in_step_ = false;
    if (chunks_.empty()) {
        end_decode(now, totals);
    } else {
        end_prefill(now, totals);
    }
    check_books();
}

bool Replica::head_fits() const {
    if (queue_head_ == queue_.size()) return false;
    return running_ < limits_.max_running && slots_used_ + limits_.slots_per_request <= limits_.state_slots &&
           kv_reserved_ + reservation(queue_[queue_head_]) <= limits_.kv_tokens;
}

void Replica::admit(std::size_t request, Time now) {
    ++running_;
    slots_used_ += limits_.slots_per_request;
    kv_reserved_ += reservation(request);
    records_[request].state = RequestState::kPrefilling;
    records_[request].admitted = now;
}

void Replica::add_chunk(Chunk chunk) {
    chunks_.push_back(chunk);
    PrefillShape& prefill = shape_.prefill;
    ++prefill.sequences;
    prefill.new_tokens += chunk.tokens;
    prefill.cached_tokens += chunk.cached;
    prefill.query_key_pairs += chunk.tokens * chunk.cached + chunk.tokens * (chunk.tokens + 1) / 2;
    // Only the last token of a prompt needs logits.
    shape_.logit_rows += chunk.cached + chunk.tokens == arrivals_[chunk.request].prompt_tokens ? 1 : 0;
}

void Replica::form_prefill(Time now) {
    std::int64_t budget = limits_.chunked_prefill_tokens;
    const auto take = [&](std::size_t request, std::int64_t cached) {
        const std::int64_t tokens = std::min(budget, arrivals_[request].prompt_tokens - cached);
        budget -= tokens;
        add_chunk({request, cached, tokens});
    };
    if (partial_) {
        take(partial_->request, partial_->cached);
        partial_.reset();
    }
    while (budget > 0 && head_fits()) {
        const std::size_t request = queue_[queue_head_++];
        admit(request, now);
        take(request, 0);
    }
}

void Replica::form_decode() {
    LinearWork& work = shape_[form_.form];
    if (form_.flush) {
        form_.flush->step(decode_step_, {}, shape_);
        KVSIM_CHECK(work.sequences == rows_, "the flush policy counts {} of {} rows", work.sequences, rows_);
    } else {
        work.sequences = rows_;
        work.new_tokens = rows_;
    }
    while (longest_.top().until <= decode_step_) longest_.pop();
    shape_.decode = {rows_, context_sum_, longest_.top().key + decode_step_};
    shape_.logit_rows = rows_;
}

void Replica::end_prefill(Time now, StepTotals& totals) {
    std::int64_t joined = 0;
    for (const Chunk& chunk : chunks_) {
        const Arrival& arrival = arrivals_[chunk.request];
        const std::int64_t cached = chunk.cached + chunk.tokens;
        if (cached < arrival.prompt_tokens) {
            KVSIM_CHECK(!partial_, "two prompts are partly prefilled at {} ps", now.value());
            partial_ = Chunk{chunk.request, cached, 0};
            continue;
        }
        totals.add_tokens(1);
        records_[chunk.request].first_token = now;
        if (arrival.output_tokens == 1) {
            finish(chunk.request, now);
        } else {
            join(chunk.request);
            ++joined;
        }
    }
    if (joined > 0) fresh_.push_back({now, joined});
}

void Replica::join(std::size_t request) {
    const Arrival& arrival = arrivals_[request];
    RequestRecord& record = records_[request];
    record.state = RequestState::kDecoding;
    record.first_step = decode_step_;
    const std::int64_t until = decode_step_ + arrival.output_tokens - 1;  // prefill yielded the first token
    departures_.push({until, request});
    longest_.push({arrival.prompt_tokens - decode_step_, until});
    ++rows_;
    context_sum_ += arrival.prompt_tokens;
    if (form_.flush) form_.flush->join(decode_step_);
}

void Replica::end_decode(Time now, StepTotals& totals) {
    std::int64_t old_rows = rows_;
    for (const Fresh& fresh : fresh_) {
        totals.add_gaps(now - fresh.first_token, fresh.rows);
        old_rows -= fresh.rows;
    }
    totals.add_gaps(now - last_decode_end_, old_rows);
    totals.add_tokens(rows_);
    fresh_.clear();
    last_decode_end_ = now;
    ++decode_step_;
    context_sum_ += rows_;
    while (!departures_.empty() && departures_.top().step == decode_step_) {
        const std::size_t request = departures_.top().request;
        departures_.pop();
        --rows_;
        context_sum_ -= reservation(request) - 1;  // the last token is never cached
        if (form_.flush) form_.flush->leave(0, records_[request].first_step, decode_step_);
        finish(request, now);
    }
}

void Replica::finish(std::size_t request, Time now) {
    records_[request].state = RequestState::kCompleted;
    records_[request].finished = now;
    --running_;
    slots_used_ -= limits_.slots_per_request;
    kv_reserved_ -= reservation(request);
}

std::int64_t Replica::tokens_of(std::size_t request) const {
    const RequestRecord& record = records_[request];
    if (record.state == RequestState::kCompleted) return arrivals_[request].output_tokens;
    if (record.state != RequestState::kDecoding) return 0;
    return 1 + decode_step_ - record.first_step;
}

void Replica::check_books() const {
    KVSIM_CHECK(slots_used_ == running_ * limits_.slots_per_request && slots_used_ <= limits_.state_slots,
                "{} of {} state slots used by {} requests", slots_used_, limits_.state_slots, running_);
    KVSIM_CHECK(
        kv_reserved_ >= running_ && kv_reserved_ <= limits_.kv_tokens && (running_ > 0 || kv_reserved_ == 0),
        "{} of {} KV tokens reserved by {} requests", kv_reserved_, limits_.kv_tokens, running_);
    KVSIM_CHECK(context_sum_ >= 0 && context_sum_ <= kv_reserved_ && (rows_ > 0 || context_sum_ == 0),
                "{} KV tokens cached of {} reserved by {} rows", context_sum_, kv_reserved_, rows_);
    const std::int64_t buffered = form_.flush ? form_.flush->buffered_tokens() : 0;
    KVSIM_CHECK(buffered >= 0 && (rows_ > 0 || buffered == 0), "{} records buffered by {} rows", buffered,
                rows_);
}

}  // namespace kvsim
