// GPU LOADS: how busy the GPUs with a living worker are, and in which order that puts them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "node/scheduling/gpu.hpp"
#include "node/scheduling/place_order.hpp"

namespace troupe::node {

// Owned by the table of GPUs, which says when one of them has changed.
class GpuLoads {
 public:
  static constexpr std::uint32_t kWhole = 100;  // percent that a run on all SMs takes

  void Add(GpuIndex index, std::uint32_t device);
  // The GPU has, or will have when `Ordered` is asked, another place.
  void Changed(GpuIndex index) {
    if (!is_changed_[index]) changed_.push_back(index);
    is_changed_[index] = true;
  }
  // Sets both of the GPU, and counts it so from now on.
  void Set(Gpu& gpu, WorkerState worker, std::uint32_t in_flight, std::uint32_t taken);

  // Those with a living worker. `gpus`: all, by index.
  [[nodiscard]] const PlaceOrder& Ordered(absl::Span<const Gpu* const> gpus) const;
  // Of the first GPUs, without finding the places of GPUs that have changed; a number above every limit when
  // there is none.
  [[nodiscard]] std::uint32_t Least() const {
    std::uint32_t least = 0;
    while (least < ready_with_.size() && ready_with_[least] == 0) ++least;
    return least < ready_with_.size() ? least : ~std::uint32_t{0};
  }
  [[nodiscard]] std::size_t ReadyCount() const { return ready_count_; }
  // Requests in flight on all runtimes of a device, those with a part of the SMs counted by that part: whole
  // ones.
  [[nodiscard]] std::uint32_t InFlightOn(std::uint32_t device) const { return taken_.at(device) / kWhole; }
  // A request is in flight there, be its part of the SMs as small as it may.
  [[nodiscard]] bool SomeOn(std::uint32_t device) const { return taken_.at(device) > 0; }

  // Ends the process when the counts are not those of the GPUs.
  void Check(absl::Span<const Gpu* const> gpus) const;

 private:
  static std::optional<GpuPlace> PlaceOf(const Gpu& gpu);

  // A decision changes a GPU several times: its place is found anew when the places are asked for.
  mutable PlaceOrder ready_;
  mutable std::vector<GpuIndex> changed_;
  mutable std::vector<bool> is_changed_;   // by index: in changed_
  std::vector<std::uint32_t> taken_;       // by device, in percent
  std::vector<std::uint32_t> ready_with_;  // GPUs with a living worker, by whole requests in flight
  std::size_t ready_count_ = 0;            // all of them
};

}  // namespace troupe::node
