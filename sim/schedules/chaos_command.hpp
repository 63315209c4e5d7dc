// `troupe chaos-sim`: schedules of faults, many of them, and what came of them.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "sim/schedules/schedule.hpp"

namespace troupe::sim {

struct ChaosCommand {
  std::optional<std::uint64_t> seed{};  // only this one, step by step when it fails
  std::uint64_t from = 1;               // the first of `schedules`
  std::uint64_t schedules = 100;
  unsigned jobs = 1;
  std::string planted{};   // an error made on purpose: then the failure is not to find it
  std::size_t steps = 40;  // the last ones that are printed of a schedule that broke a rule
  std::function<bool()> interrupted{};
};

// From so many schedules on, a fault that never fired is a failure.
inline constexpr std::uint64_t kEnoughForAllFaults = 50;

// True: no rule was broken (with an error planted: one was). InvalidArgument: no such planted error.
[[nodiscard]] absl::StatusOr<bool> RunChaos(const ChaosCommand& command, std::ostream& out);

}  // namespace troupe::sim
