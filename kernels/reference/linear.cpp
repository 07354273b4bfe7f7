#include "kernels/reference/linear.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace kvsim::reference {
namespace {

// Four sums side by side: one alone waits for each addition, and dot products are most of the work.
double dot(std::span<const double> a, std::span<const double> b) {
    std::array<double, 4> sums{};
    std::size_t i = 0;
    for (; i + sums.size() <= a.size(); i += sums.size()) {
        for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += a[i + j] * b[i + j];
    }
    for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void require(bool condition, const char* what) {
    if (!condition) throw std::logic_error(what);
}

// The part of an array [heads, dim] that belongs to one head.
template <class T>
std::span<T> head_span(std::span<T> values, int head, int dim) {
    return values.subspan(std::size_t(head) * dim, dim);
}

int key_head(const LinearShape& s, int value_head) {
    return value_head / (s.v_heads / s.k_heads);
}

// Views of one value head of a token.
struct Head {
    std::span<const double> q, k, v;
    double log_gate, beta, key_scale;
};
Head head_of(const LinearShape& s, const LinearToken& t, int hv) {
    const int hk = key_head(s, hv);
    return {head_span(std::span(t.q), hk, s.k_dim),
            head_span(std::span(t.k), hk, s.k_dim),
            head_span(std::span(t.v), hv, s.v_dim),
            t.log_gate[hv],
            t.beta[hv],
            t.key_scale[hk]};
}

std::span<double> state_row(const LinearShape& s, std::span<double> state, int hv, int row) {
    return head_span(state, hv * s.v_dim + row, s.k_dim);
}

// `decayed` is gate S k, what the decayed state holds under the new key.
double update(const LinearShape& s, const Head& h, int row, double decayed) {
    return h.beta * (has_delta_rule(s.family) ? h.v[row] - decayed : h.v[row]);
}

double recorded_u(double u, RecordRounding rounding) {
    if (rounding == RecordRounding::kNone) return u;
    return rounding == RecordRounding::kBf16 ? round_to_bf16(u) : round_to_fp32(u);
}

// Views of a cache's records, oldest first.
class Records {
  public:
    explicit Records(BufferedCache& cache) : c_(cache) {}

    std::span<double> keys(int i) { return part(c_.ring_k, i, c_.shape.k_heads * c_.shape.k_dim); }
    std::span<double> key(int i, int hv) {
        return head_span(keys(i), key_head(c_.shape, hv), c_.shape.k_dim);
    }
    std::span<double> u(int i, int hv) {
        return head_span(part(c_.ring_u, i, c_.shape.v_heads * c_.shape.v_dim), hv, c_.shape.v_dim);
    }
    double& gate(int i, int hv) { return part(c_.ring_gate, i, c_.shape.v_heads)[hv]; }

  private:
    std::span<double> part(std::vector<double>& ring, int i, int size) {
        return head_span(std::span(ring), c_.at(i), size);
    }
    BufferedCache& c_;
};

// Output of a token that finds n records in the ring; its own becomes record n, not yet committed.
void append(BufferedCache& cache, const LinearToken& token, int n, std::span<double> out) {
    const LinearShape& s = cache.shape;
    Records records(cache);
    std::copy(token.raw_k.begin(), token.raw_k.end(), records.keys(n).begin());
    std::vector<double> with_k(n), with_q(n), row(s.k_dim);
    for (int hv = 0; hv < s.v_heads; ++hv) {
        const Head h = head_of(s, token, hv);
        const double gate = (n > 0 ? records.gate(n - 1, hv) : 0.0) + h.log_gate;
        records.gate(n, hv) = cache.storage.records == RecordRounding::kNone ? gate : round_to_fp32(gate);
        const double state_decay = std::exp(records.gate(n, hv));
        // What is left of a record at the new token, times its overlap with the new key and query.
        for (int i = 0; i < n; ++i) {
            const double decay = std::exp(records.gate(n, hv) - records.gate(i, hv));
            with_k[i] = decay * dot(records.key(i, hv), h.k);
            with_q[i] = decay * dot(records.key(i, hv), h.q);
        }
        const double k_q = dot(h.k, h.q);
        for (int r = 0; r < s.v_dim; ++r) {
            const auto kept = state_row(s, cache.state, hv, r);
            std::transform(kept.begin(), kept.end(), row.begin(),
                           [&](double x) { return seen(x, cache.storage.state); });
            double sk = state_decay * dot(row, h.k);
            double sq = state_decay * dot(row, h.q);
            for (int i = 0; i < n; ++i) {
                sk += records.u(i, hv)[r] * with_k[i];
                sq += records.u(i, hv)[r] * with_q[i];
            }
            const double u = update(s, h, r, sk);
            records.u(n, hv)[r] = recorded_u(h.key_scale * u, cache.storage.records);
            out[std::size_t(hv) * s.v_dim + r] = sq + u * k_q;
        }
    }
}

// Folds the committed records into the state.
void fold(BufferedCache& cache) {
    const LinearShape& s = cache.shape;
    const int n = cache.fill;
    if (n == 0) return;
    Records records(cache);
    for (int hv = 0; hv < s.v_heads; ++hv) {
        const double last = records.gate(n - 1, hv);
        const double state_decay = std::exp(last);
        for (int r = 0; r < s.v_dim; ++r) {
            const auto row = state_row(s, cache.state, hv, r);
            for (double& x : row) x *= state_decay;
            for (int i = 0; i < n; ++i) {
                const double weight = std::exp(last - records.gate(i, hv)) * records.u(i, hv)[r];
                const auto key = records.key(i, hv);
                for (int c = 0; c < s.k_dim; ++c) row[c] += weight * key[c];
            }
            store(row, cache.storage.state);
        }
    }
    cache.start = cache.at(n);
    cache.fill = 0;
}

}  // namespace

void recurrent_step(const LinearShape& s, const LinearToken& token, std::span<double> state,
                    std::span<double> out) {
    for (int hv = 0; hv < s.v_heads; ++hv) {
        const Head h = head_of(s, token, hv);
        const double gate = std::exp(h.log_gate);
        for (int r = 0; r < s.v_dim; ++r) {
            const auto row = state_row(s, state, hv, r);
            for (double& x : row) x *= gate;
            const double u = update(s, h, r, dot(row, h.k));
            for (int c = 0; c < s.k_dim; ++c) row[c] += u * h.k[c];
            out[std::size_t(hv) * s.v_dim + r] = dot(row, h.q);
        }
    }
}

std::vector<std::vector<double>> verify_stored(const LinearShape& s, std::span<const LinearToken> tokens,
                                               std::span<const double> state, std::span<double> out,
                                               StateRounding rounding) {
    const int values = s.v_heads * s.v_dim;
    std::vector<double> current(state.begin(), state.end());
    std::vector<std::vector<double>> states;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        recurrent_step(s, tokens[t], current, head_span(out, int(t), values));
        states.push_back(current);
        store(states.back(), rounding);
    }
    return states;
}

BufferedCache::BufferedCache(const LinearShape& layer, int ring_capacity, Storage kept_as)
    : shape(layer),
      storage(kept_as),
      state(std::size_t(layer.v_heads) * layer.v_dim * layer.k_dim),
      capacity(ring_capacity) {
    require(capacity >= 1, "a ring holds at least one record");
    const double never_written = std::numeric_limits<double>::quiet_NaN();
    ring_k.assign(std::size_t(capacity) * layer.k_heads * layer.k_dim, never_written);
    ring_u.assign(std::size_t(capacity) * layer.v_heads * layer.v_dim, never_written);
    ring_gate.assign(std::size_t(capacity) * layer.v_heads, never_written);
}

void buffered_step(BufferedCache& cache, const LinearToken& token, bool flush, std::span<double> out) {
    require(cache.fill < cache.capacity, "the ring is full: a flush is overdue");
    append(cache, token, cache.fill, out);
    ++cache.fill;
    if (flush) fold(cache);
}

void verify_buffered(BufferedCache& cache, std::span<const LinearToken> tokens, bool flush,
                     std::span<double> out) {
    const int count = static_cast<int>(tokens.size());
    require(cache.fill + count <= cache.capacity, "the ring has no room for the new tokens");
    const LinearShape& s = cache.shape;
    for (int t = 0; t < count; ++t)
        append(cache, tokens[std::size_t(t)], cache.fill + t, head_span(out, t, s.v_heads * s.v_dim));
    if (!flush || cache.fill == 0) return;
    // The tokens have seen the state as it was; their gates count from the fold on.
    std::vector<double> base(s.v_heads);
    for (int hv = 0; hv < s.v_heads; ++hv) base[hv] = Records(cache).gate(cache.fill - 1, hv);
    fold(cache);
    for (int t = 0; t < count; ++t) {
        for (int hv = 0; hv < s.v_heads; ++hv) {
            double& gate = Records(cache).gate(t, hv);
            gate -= base[hv];
            if (cache.storage.records != RecordRounding::kNone) gate = round_to_fp32(gate);
        }
    }
}

double relative_error(std::span<const double> value, std::span<const double> truth) {
    double difference = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < truth.size(); ++i) {
        if (!std::isfinite(value[i])) return std::numeric_limits<double>::infinity();
        difference += (value[i] - truth[i]) * (value[i] - truth[i]);
        norm += truth[i] * truth[i];
    }
    if (norm == 0.0) return difference == 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
    return std::sqrt(difference / norm);
}

}  // namespace kvsim::reference
