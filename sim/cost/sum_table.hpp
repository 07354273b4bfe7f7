// Sums of the operators of a forward pass that depend on one number alone, by that number: on the tokens of a
// step, or on its rows of logits.
//
// Bytes, FLOPs, messages and rows of these operators grow by the same amount with every token. Three walks of
// the graph tell by how much; any other number of tokens is then priced from a flat list of works. Where the
// third walk shows that something does not grow so (shares of tokens that are rounded up), every new number
// is walked.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/cost/step_cost.hpp"

namespace kvsim {

struct PassSums {
    CostSums cost;
    ByteLedger bytes{};  // of all layers

    void add(const Operator& op, const OperatorPrice& price, std::int64_t count);
};

// Layers in a row; and those whose mixers run beside each other, one layer on either branch: the longer one
// counts.
struct TokenSums {
    PassSums serial;
    std::int64_t beside_layers = 0;
    CostSums attention, linear;
};

// Lists of a forward pass that holds so many tokens, or rows of logits.
using WalkPass = std::function<std::vector<NamedList>(std::int64_t number)>;

// The operators in lists of one structure that one driver determines, as numbers. Learnt from walks at
// `first`, `first + 1` and `last`; sums(n) for n in [first, last].
class AffinePass {
  public:
    AffinePass(const OperatorPricer& pricer, WalkPass walk, Driver driver, std::int64_t first,
               std::int64_t last);

    TokenSums sums(std::int64_t n);

  private:
    struct Term {  // one operator, in any number of lists
        Operator op;
        ByteLedger bytes, bytes_each;  // at `first`, and for every one more
        std::int64_t flops = 0, flops_each = 0;
        std::int64_t size = 0, size_each = 0;  // rows of a product, bytes of a message, tokens of experts
        bool grown = false;
        OperatorPrice price;
        std::int64_t uses = 0;  // on the critical paths, over all layers
    };
    enum class Branch : std::uint8_t { kWhole, kAttention, kLinear };
    struct Path {
        Branch branch = Branch::kWhole;
        std::vector<std::size_t> terms;
    };
    struct List {
        std::int64_t count = 1;
        bool beside = false;
        std::vector<std::size_t> terms;  // all
        std::vector<Path> paths;
    };

    void learn(const std::vector<NamedList>& lists, Driver driver);
    bool grow(const std::vector<NamedList>& next, const std::vector<NamedList>& last);
    std::size_t term_of(const Operator& op);
    void set(Term& term, std::int64_t n);
    const Path* longest(const List& list, Branch branch) const;
    void add_beside(const List& list, TokenSums& sums) const;

    const OperatorPricer& pricer_;
    WalkPass walk_;
    Driver driver_;
    std::int64_t first_, last_;
    bool affine_ = true;
    std::vector<Term> terms_;
    std::vector<List> lists_;
};

// Keeps the sums of kSlots numbers at most, 8 MiB.
class SumTable {
  public:
    // The structure of the lists may change beyond each of `cuts`.
    SumTable(const OperatorPricer& pricer, WalkPass walk, Driver driver, std::vector<std::int64_t> cuts);

    const TokenSums& at(std::int64_t n) {
        std::int32_t& slot = slots_[static_cast<std::size_t>(n) % kSlots];
        if (slot < 0 || entries_[static_cast<std::size_t>(slot)].n != n) fill(slot, n);
        return entries_[static_cast<std::size_t>(slot)].sums;
    }

  private:
    static constexpr std::size_t kSlots = std::size_t{1} << 14;
    static constexpr std::int64_t kMost = std::int64_t{1} << 24;  // walks of more may leave 64 bits
    struct Entry {
        std::int64_t n = 0;
        TokenSums sums;
    };
    struct Range {
        std::int64_t first, last;
        std::vector<AffinePass> pass;  // one, once a number of the range has been asked for
    };

    void fill(std::int32_t& slot, std::int64_t n);

    const OperatorPricer& pricer_;
    WalkPass walk_;
    Driver driver_;
    std::vector<Range> ranges_;
    std::vector<std::int32_t> slots_;
    std::vector<Entry> entries_;
};

}  // namespace kvsim
