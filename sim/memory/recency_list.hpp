// Things by when they were last put to use: a doubly linked list on a vector, by number from 1.
#pragma once

#include <cstdint>
#include <vector>

namespace kvsim {

class RecencyList {
  public:
    bool empty() const { return links_[kHead].newer == kHead; }
    std::uint32_t oldest() const { return links_[kHead].newer; }
    void push(std::uint32_t item) {  // as the newest; it must not be in the list
        if (item >= links_.size()) links_.resize(item + std::size_t{1});
        const std::uint32_t last = links_[kHead].older;
        links_[item] = {last, kHead};
        links_[last].newer = item;
        links_[kHead].older = item;
    }
    void remove(std::uint32_t item) {
        const Link link = links_[item];
        links_[link.older].newer = link.newer;
        links_[link.newer].older = link.older;
    }

  private:
    static constexpr std::uint32_t kHead = 0;
    struct Link {
        std::uint32_t older = kHead;
        std::uint32_t newer = kHead;
    };
    std::vector<Link> links_{1};
};

}  // namespace kvsim
