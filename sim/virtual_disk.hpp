// VIRTUAL DISK: the manager's disk in a virtual system: a commit takes as long as on a real one (sim/faults/simulated_disk.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/random.hpp"
#include "sim/faults/simulated_disk.hpp"
#include "sim/virtual_timer.hpp"

namespace troupe::sim {

class VirtualDisk {
 public:
  // `system` outlives the disk, or End comes before its end.
  VirtualDisk(VirtualSystem& system, std::uint64_t seed)
      : system_(system), timer_(system), disk_(Events(), Random(seed)) {}
  [[nodiscard]] storage::MetadataStore& store() { return disk_; }
  // Commits that were not answered until now never are.
  void End() { timer_.End(); }

 private:
  SimulatedDisk::Events Events() {
    return {.now = [this] { return system_.Now(); },
            .at = [this](Time when, std::function<void()> what) { timer_.At(when, std::move(what)); },
            .written = [](const storage::Batch&, bool) {}};
  }

  VirtualSystem& system_;
  VirtualTimer timer_;
  SimulatedDisk disk_;
};

}  // namespace troupe::sim
