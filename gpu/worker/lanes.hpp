// Where the worker writes which order each of its lanes is at.
#pragma once

#include <cstdint>

#include "gpu/worker/control_page.hpp"

namespace troupe::gpu {

// Writes one control page. The main loop's thread.
class Lanes {
 public:
  explicit Lanes(ControlPage& page) : page_(page) {}
  void At(Lane lane, std::uint64_t order) { Cell(lane).order.store(order, std::memory_order_relaxed); }
  void Show(Lane lane, bool busy, std::uint64_t progress) {
    Cell(lane).progress.store(progress, std::memory_order_relaxed);
    Cell(lane).busy.store(busy ? 1 : 0, std::memory_order_relaxed);
  }
  [[nodiscard]] ControlPage& page() { return page_; }

 private:
  ControlPage::LaneCell& Cell(Lane lane) { return page_.lanes[static_cast<std::size_t>(lane)]; }
  ControlPage& page_;
};

}  // namespace troupe::gpu
