// Workloads that are made, not read. Each draws from the generator that it is given and from nothing else:
// the same seed gives the same arrivals on every machine.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/random.hpp"
#include "sim/traces/workload.hpp"

namespace troupe::sim {

// The requests of each minute, spread over it. A function's draws do not depend on the other functions.
[[nodiscard]] Workload SpreadCounts(const MinuteCounts& counts, Spread spread, Random& random);

// How the rate of a made workload goes.
enum class Shape {
  kPoisson,   // the same rate all the time
  kPeriodic,  // each function every 1/rate, from a point of its own
  kBursty,    // a minute's requests in bursts: for a tenth of the time ten times the rate, else none
  kSporadic,  // each function on its own, by pauses of which half are short and half are long
  kRamp,      // from nothing to twice the rate, so that the mean is the rate
};
struct MadeWorkload {
  Shape shape = Shape::kPoisson;
  std::uint32_t functions = 1;
  double rate = 1;  // requests a second, of all functions together
  Duration length = std::chrono::minutes(1);
  // Of each function relative to the next: 0 all alike, else the k-th has 1 / k^skew.
  double skew = 0;
};
[[nodiscard]] Workload MakeWorkload(const MadeWorkload& made, Random& random);

// "bursty functions=20 rate=5 length=3m skew=0.9"; InvalidArgument says which word is wrong, and what was
// expected.
[[nodiscard]] absl::StatusOr<MadeWorkload> ParseMadeWorkload(const std::string& text);

}  // namespace troupe::sim
