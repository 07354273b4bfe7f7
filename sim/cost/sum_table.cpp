#include "sim/cost/sum_table.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/check.hpp"
#include "sim/cost/graph/layer_graph.hpp"
#include "sim/cost/graph/parts.hpp"

namespace kvsim {

namespace {

// The number that a work is made for; 0 where bytes tell everything.
std::int64_t size_of(const Operator& op) {
    if (const auto* product = std::get_if<GemmWork>(&op.pricing)) return product->m;
    if (const auto* experts = std::get_if<ExpertsWork>(&op.pricing)) return experts->tokens;
    if (const auto* sum = std::get_if<AllReduce>(&op.pricing)) return sum->message.value();
    if (const auto* exchange = std::get_if<AllToAll>(&op.pricing)) return exchange->sent.value();
    KVSIM_CHECK(std::holds_alternative<ElementWise>(op.pricing), "{} depends on more than a number", op.name);
    return 0;
}

// Bytes and FLOPs of experts follow from their tokens, and not in proportion.
bool grows_evenly(const Operator& op) {
    return !std::holds_alternative<ExpertsWork>(op.pricing);
}

// Alike in all that a number of tokens leaves as it is.
bool same_kind(const Operator& a, const Operator& b) {
    if (a.name != b.name || a.pricing.index() != b.pricing.index() || a.after != b.after) return false;
    return a.launches == b.launches || !std::holds_alternative<ElementWise>(a.pricing);
}

bool same_structure(const std::vector<NamedList>& a, const std::vector<NamedList>& b) {
    return std::ranges::equal(a, b, [](const NamedList& x, const NamedList& y) {
        return x.count == y.count && std::ranges::equal(x.operators, y.operators, same_kind);
    });
}

// How much more than at `first` it is for every one more, if that explains `last` too.
struct Growth {
    std::int64_t steps;  // from first to last
    bool even = true;

    std::int64_t operator()(std::int64_t first, std::int64_t next, std::int64_t last) {
        const std::int64_t each = next - first;
        if (last != first + each * steps) even = false;
        return each;
    }
};

}  // namespace

void PassSums::add(const Operator& op, const OperatorPrice& price, std::int64_t count) {
    cost.add(price, count);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += op.bytes[i] * count;
}

AffinePass::AffinePass(const OperatorPricer& pricer, WalkPass walk, Driver driver, std::int64_t first,
                       std::int64_t last)
    : pricer_(pricer), walk_(std::move(walk)), driver_(driver), first_(first), last_(last) {
    const std::vector<NamedList> lists = walk_(first_);
    learn(lists, driver_);
    if (first_ == last_) return;
    const std::vector<NamedList> next = walk_(first_ + 1);
    const std::vector<NamedList> end = walk_(last_);
    affine_ = same_structure(lists, next) && same_structure(lists, end) && grow(next, end);
}

std::size_t AffinePass::term_of(const Operator& op) {
    for (std::size_t i = 0; i < terms_.size(); ++i) {
        const Term& t = terms_[i];
        if (t.op.name == op.name && t.op.pricing == op.pricing && t.bytes == op.bytes &&
            t.flops == op.flops && t.op.launches == op.launches)
            return i;
    }
    Term& term = terms_.emplace_back();
    term.op = op;
    term.op.after.clear();
    term.bytes = op.bytes;
    term.flops = op.flops;
    term.size = size_of(op);
    return terms_.size() - 1;
}

void AffinePass::learn(const std::vector<NamedList>& lists, Driver driver) {
    terms_.clear();
    lists_.clear();
    for (const NamedList& named : lists) {
        List list;
        list.count = named.count;
        std::vector<std::size_t> term(named.operators.size());
        for (std::size_t i = 0; i < term.size(); ++i) {
            if (named.operators[i].driver == driver)
                list.terms.push_back(term[i] = term_of(named.operators[i]));
        }
        for (const std::vector<std::size_t>& operators : all_paths(named.operators)) {
            Path path;
            bool attention = false, linear = false;
            for (const std::size_t i : operators) {
                const Operator& op = named.operators[i];
                attention |= op.driver == Driver::kAttention;
                linear |= op.driver == Driver::kLinear;
                if (op.driver == driver) path.terms.push_back(term[i]);
            }
            path.branch = attention == linear ? Branch::kWhole
                          : attention         ? Branch::kAttention
                                              : Branch::kLinear;
            list.paths.push_back(std::move(path));
        }
        const auto takes = [&](Branch b) { return std::ranges::count(list.paths, b, &Path::branch) > 0; };
        list.beside = takes(Branch::kAttention) && takes(Branch::kLinear);
        if (!list.beside) {
            for (Path& path : list.paths) path.branch = Branch::kWhole;
        }
        lists_.push_back(std::move(list));
    }
}

bool AffinePass::grow(const std::vector<NamedList>& next, const std::vector<NamedList>& last) {
    Growth each{last_ - first_};
    for (std::size_t l = 0; l < lists_.size(); ++l) {
        std::size_t at = 0;
        for (std::size_t i = 0; i < next[l].operators.size(); ++i) {
            const Operator& b = next[l].operators[i];
            const Operator& c = last[l].operators[i];
            if (b.driver != driver_) continue;
            Term& term = terms_[lists_[l].terms[at++]];
            const Term before = term;
            term.size_each = each(term.size, size_of(b), size_of(c));
            if (grows_evenly(b)) {
                term.flops_each = each(term.flops, b.flops, c.flops);
                for (std::size_t o = 0; o < b.bytes.size(); ++o) {
                    term.bytes_each[o] =
                        Bytes(each(term.bytes[o].value(), b.bytes[o].value(), c.bytes[o].value()));
                }
            }
            // Operators that were alike at `first` are one term: they must be alike elsewhere too.
            if (term.grown && (term.size_each != before.size_each || term.flops_each != before.flops_each ||
                               term.bytes_each != before.bytes_each))
                return false;
            term.grown = true;
        }
    }
    return each.even;
}

void AffinePass::set(Term& term, std::int64_t n) {
    const std::int64_t more = n - first_;
    const std::int64_t size = term.size + term.size_each * more;
    if (auto* experts = std::get_if<ExpertsWork>(&term.op.pricing)) {
        set_tokens(term.op, *experts, size);
        return;
    }
    term.op.flops = term.flops + term.flops_each * more;
    for (std::size_t o = 0; o < term.bytes.size(); ++o)
        term.op.bytes[o] = term.bytes[o] + term.bytes_each[o] * more;
    if (auto* product = std::get_if<GemmWork>(&term.op.pricing)) product->m = size;
    if (auto* sum = std::get_if<AllReduce>(&term.op.pricing)) sum->message = Bytes(size);
    if (auto* exchange = std::get_if<AllToAll>(&term.op.pricing)) exchange->sent = Bytes(size);
}

const AffinePass::Path* AffinePass::longest(const List& list, Branch branch) const {
    const Path* best = nullptr;
    Time best_time;
    for (const Path& path : list.paths) {
        if (path.branch != branch) continue;
        Time time;
        for (const std::size_t i : path.terms) time += terms_[i].price.time;
        if (best != nullptr && time <= best_time) continue;
        best = &path;
        best_time = time;
    }
    return best;
}

void AffinePass::add_beside(const List& list, TokenSums& sums) const {
    KVSIM_CHECK(sums.beside_layers == 0, "two kinds of layers with mixers side by side");
    sums.beside_layers = list.count;
    for (const std::size_t i : longest(list, Branch::kAttention)->terms) sums.attention.add(terms_[i].price);
    for (const std::size_t i : longest(list, Branch::kLinear)->terms) sums.linear.add(terms_[i].price);
}

TokenSums AffinePass::sums(std::int64_t n) {
    KVSIM_CHECK(first_ <= n && n <= last_, "{} is not between {} and {}", n, first_, last_);
    if (!affine_) learn(walk_(n), driver_);
    for (Term& term : terms_) {
        if (affine_) set(term, n);
        term.price = pricer_.price(term.op);
        term.uses = 0;
    }
    TokenSums sums;
    for (const List& list : lists_) {
        for (const std::size_t i : list.terms) {
            const ByteLedger& bytes = terms_[i].op.bytes;
            for (std::size_t o = 0; o < bytes.size(); ++o) sums.serial.bytes[o] += bytes[o] * list.count;
        }
        if (list.beside) {
            add_beside(list, sums);
        } else if (const Path* path = longest(list, Branch::kWhole)) {
            for (const std::size_t i : path->terms) terms_[i].uses += list.count;
        }
    }
    for (const Term& term : terms_) {
        if (term.uses > 0) sums.serial.cost.add(term.price, term.uses);
    }
    return sums;
}

SumTable::SumTable(const OperatorPricer& pricer, WalkPass walk, Driver driver, std::vector<std::int64_t> cuts)
    : pricer_(pricer), walk_(std::move(walk)), driver_(driver), slots_(kSlots, -1) {
    std::ranges::sort(cuts);
    std::int64_t first = 1;
    for (const std::int64_t cut : cuts) {
        if (cut < first) continue;
        ranges_.push_back({first, cut, {}});
        first = cut + 1;
    }
    ranges_.push_back({first, kMost, {}});
}

void SumTable::fill(std::int32_t& slot, std::int64_t n) {
    if (slot < 0) {
        slot = static_cast<std::int32_t>(entries_.size());
        entries_.emplace_back();
    }
    Entry& entry = entries_[static_cast<std::size_t>(slot)];
    entry.n = n;
    if (n > kMost) {
        entry.sums = AffinePass(pricer_, walk_, driver_, n, n).sums(n);
        return;
    }
    Range& range = *std::ranges::find_if(ranges_, [&](const Range& r) { return n <= r.last; });
    if (range.pass.empty()) range.pass.emplace_back(pricer_, walk_, driver_, range.first, range.last);
    entry.sums = range.pass.front().sums(n);
}

}  // namespace kvsim
