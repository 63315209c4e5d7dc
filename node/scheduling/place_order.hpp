// PLACE ORDER: the GPUs with a living worker, the least busy one first, and of equals the one with the most
// free memory. Each decision moves a GPU or two and asks for the first few: all stand in a heap, and the
// first of them also in a row. Owned by the table of GPUs.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/units.hpp"
#include "node/request.hpp"

namespace troupe::node {

// Of equals the smaller index is first.
struct GpuPlace {
  std::uint64_t load = 0;  // requests in flight, and below them (48 bits) bytes that are not free
  GpuIndex gpu = kNoGpu;

  static GpuPlace Of(GpuIndex gpu, std::uint32_t in_flight, Bytes free);
  [[nodiscard]] std::uint32_t in_flight() const { return static_cast<std::uint32_t>(load >> 48); }
  [[gnu::always_inline]] auto operator<=>(const GpuPlace&) const = default;
};

class PlaceOrder {
 public:
  // Where the GPU stands from now on, if anywhere.
  void Set(GpuIndex gpu, const std::optional<GpuPlace>& place);
  [[nodiscard]] std::optional<GpuPlace> Find(GpuIndex gpu) const;
  [[nodiscard]] std::size_t size() const { return heap_.size(); }

  // Calls `visit` for one place after another, in order, until it answers false.
  template <class Visit>
  void InOrder(Visit visit) const {
    for (std::size_t at = 0; at < size(); ++at) {
      if (at == known_ && at < kFirst) FindFirst();
      if (at == kFirst)
        return InHeapOrder(
            [&](const GpuPlace& place) { return !(first_[kFirst - 1] < place) || visit(place); });
      if (!visit(first_[at])) return;
    }
  }

 private:
  static constexpr std::size_t kNowhere = ~std::size_t{0}, kFirst = 16;
  template <class Visit>
  void InHeapOrder(Visit visit) const {
    // Places whose predecessors in the heap were visited, the first one last: they are few.
    absl::InlinedVector<std::size_t, 32> next;
    const auto add = [&](std::size_t at) {
      if (at >= heap_.size()) return;
      std::size_t to = next.size();
      next.push_back(at);
      for (; to > 0 && heap_[next[to - 1]] < heap_[at]; --to) next[to] = next[to - 1];
      next[to] = at;
    };
    add(0);
    while (!next.empty()) {
      const std::size_t at = next.back();
      if (!visit(heap_[at])) return;
      next.pop_back();
      add(2 * at + 1);
      add(2 * at + 2);
    }
  }

  void FindFirst() const;
  void ChangeFirst(const std::optional<GpuPlace>& from, const std::optional<GpuPlace>& to);
  void MoveUp(std::size_t at, const GpuPlace& place);
  void MoveDown(std::size_t at, const GpuPlace& place);
  void Put(std::size_t at, const GpuPlace& place) {
    heap_[at] = place;
    at_[place.gpu] = at;
  }

  std::vector<GpuPlace> heap_;
  // Up to kFirst of the smallest places, in order; what was lost of them is sought again when it is asked
  // for.
  mutable std::array<GpuPlace, kFirst + 1> first_;
  mutable std::size_t known_ = 0;  // of the row
  std::vector<std::size_t> at_;    // by GPU
};

}  // namespace troupe::node
