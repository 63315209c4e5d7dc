// What runs of a plan need of device memory, and what they have taught of it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/memory/memory_profile.hpp"
#include "gpu/memory/weight_window.hpp"

namespace troupe::gpu {

// One profile per plan, that is per model, batch and input size. Forgets plans that are gone. The main loop's
// thread.
class RunNeeds {
 public:
  // At these steps much of the activations has been used for the last time.
  struct Trim {
    std::size_t step = 0;
    Bytes left;  // what this step and those behind it use
    friend bool operator==(const Trim&, const Trim&) = default;
  };
  struct Needs {
    std::weak_ptr<const DevicePlan> plan;
    Duration run_time{};      // of the last run; zero: none has ended yet
    Duration resident_run{};  // of the last one whose weights were all there, or of the very first
    std::shared_ptr<const MemoryProfile> profile;
    std::vector<Trim> trims;                     // by step
    std::shared_ptr<const WeightWindow> window;  // when it has run by layer
  };
  // `plans`: how many there are at a time, about.
  explicit RunNeeds(std::size_t plans) : plans_(plans) {}
  [[nodiscard]] const Needs& Of(const std::shared_ptr<const DevicePlan>& plan);
  // For its runs by layer; `group`: what the link carries well at a time, the same each time.
  [[nodiscard]] std::shared_ptr<const WeightWindow> WindowOf(const std::shared_ptr<const DevicePlan>& plan,
                                                             Bytes group);
  // `waited`: for weights that were on their way.
  void Measured(const std::shared_ptr<const DevicePlan>& plan, Duration run_time, bool waited);

  // Less than this is not worth the message from the device's thread.
  static constexpr Bytes kWorthTrimming = KiB(256);
  // Where the rest falls to three quarters, a half, a quarter and an eighth of the whole.
  [[nodiscard]] static std::vector<Trim> TrimsOf(const DevicePlan& plan);

 private:
  Needs& Find(const std::shared_ptr<const DevicePlan>& plan);
  const std::size_t plans_;
  std::map<const DevicePlan*, Needs> needs_;
};

}  // namespace troupe::gpu
