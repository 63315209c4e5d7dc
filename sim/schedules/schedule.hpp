// SCHEDULE: one seed: a cluster, what is asked of it, what goes wrong with it and when; then nothing goes
// wrong any more, and the checkers judge what was seen. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/chaos/fault_injector.hpp"
#include "sim/chaos/planted.hpp"
#include "sim/workloads/clients.hpp"

namespace troupe::sim {

struct ScheduleOptions {
  std::uint64_t seed = 1;
  Planted planted = Planted::kNone;
  std::size_t steps = 40;  // the last ones that are told of a schedule that broke a rule
};

struct Broken {
  std::string checker{};
  std::string line{};
};

struct ScheduleResult {
  std::uint64_t seed = 0;
  std::string what{};  // the cluster, its load and its faults
  std::vector<Broken> broken{};
  std::vector<std::string> last_steps{};  // of a schedule that broke a rule
  FaultCounts fired{};
  std::uint64_t requests = 0, served = 0, commands = 0, commits = 0, runs = 0;
  std::uint64_t stale = 0;      // requests that came to a node with an epoch that was over
  std::uint64_t resumed = 0;    // runs that a gateway went on with behind committed steps
  std::uint64_t repeated = 0;   // requests that were given the answer to another with their key
  std::uint64_t undecided = 0;  // histories that were too long to judge
  Duration recovered{};         // from the last fault's end until all was well
  std::uint64_t trace_hash = 0;
};

[[nodiscard]] ScheduleResult RunSchedule(const ScheduleOptions& options);

}  // namespace troupe::sim
