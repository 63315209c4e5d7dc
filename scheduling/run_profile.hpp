// RUN PROFILE: how long the runs of one model take on each share of a GPU and with each batch, as it was
// measured. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/units.hpp"

namespace troupe {

class RunProfile {
 public:
  // A later one at the same point replaces it. `share` in percent; nothing that is zero counts.
  void Add(std::uint32_t share, std::uint32_t batch, Duration run);
  [[nodiscard]] bool empty() const { return by_batch_.empty(); }
  // Between measured shares the rate of runs is linear; below the smallest it falls in proportion, above the largest
  // it stays. Between measured batches the time is linear. Nothing for a batch below or above all of them: such a
  // run was not measured.
  [[nodiscard]] std::optional<Duration> RunTime(std::uint32_t share, std::uint32_t batch) const;

 private:
  using Rates = std::map<std::uint32_t, double>;  // runs per second, by share
  [[nodiscard]] static double RateAt(const Rates& rates, std::uint32_t share);

  std::map<std::uint32_t, Rates> by_batch_;
};

}  // namespace troupe
