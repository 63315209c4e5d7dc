// WORKLOAD: what is asked of a simulated cluster: functions, and when each is called. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace troupe::sim {

struct TraceFunction {
  std::string name;
  std::string model;                  // of the cluster file; empty: the cluster file's turn decides
  std::string tenant{};               // whose runtimes it uses, where they are a user's
  std::vector<std::uint32_t> then{};  // steps of a workflow that read its output (sim/trace_workflows.hpp)
  Bytes passes{};                     // what each of those reads
};
struct Arrival {
  Duration at{};  // since the begin
  std::uint32_t function = 0;
  auto operator<=>(const Arrival&) const = default;
};
struct Workload {
  std::vector<TraceFunction> functions;
  std::vector<Arrival> arrivals;  // in order
  Duration length{};              // of the trace
};

// Requests of each function in each minute, as the Azure Functions traces have them.
struct MinuteCounts {
  std::vector<TraceFunction> functions;
  std::vector<std::vector<std::uint32_t>> counts;  // by function, then minute
  [[nodiscard]] std::size_t minutes() const { return counts.empty() ? 0 : counts.front().size(); }
};

// How the requests of a minute lie in it.
enum class Spread {
  kUniform,  // each anywhere, alike
  kEven,     // at equal distances, from a point of its own per function
  kPoisson,  // a Poisson process of the minute's rate: also their number is drawn
};

}  // namespace troupe::sim
