// FUNCTION LOADS: what members told of functions whose instances follow their load, put together for the next look. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cluster/function_table.hpp"
#include "proto/cluster.pb.h"

namespace troupe::cluster {

class FunctionLoads {
 public:
  // Of one function since the look before.
  struct Load {
    std::uint64_t arrived = 0, served = 0;
    Duration gpu_time{};        // by its runs' part of the SMs
    std::uint64_t ended = 0;    // requests that count for the SLO
    std::uint64_t late = 0;     // of these, late for a swap
    Duration swapping{};        // that they waited for swaps
    std::uint64_t waiting = 0;  // now, at all gateways
  };

  static constexpr std::uint64_t kMost = 1'000'000'000;
  // What a gateway said of requests that wait there counts for so long.
  static constexpr Duration kFresh = std::chrono::seconds(3);

  // Of other functions than `scaled` nothing is kept. A count beyond kMost is taken for that.
  void Hear(const proto::Heartbeat& heartbeat, const std::set<FunctionVersion>& scaled, Time now);
  // The functions that Take would tell of, some of them twice.
  [[nodiscard]] std::vector<FunctionVersion> Told() const;
  // What was told since the latest call of Take.
  [[nodiscard]] const std::map<FunctionVersion, Load>& since() const { return since_; }
  // At some gateway requests wait that no node has taken.
  [[nodiscard]] bool AnyWaits() const { return !waiting_.empty(); }
  // Of the functions of which something was told since the call before, or for which requests wait.
  [[nodiscard]] std::map<FunctionVersion, Load> Take(Time now);

 private:
  struct Waiting {
    Time heard{};
    std::map<FunctionVersion, std::uint64_t> requests{};
  };
  std::map<FunctionVersion, Load> since_;
  std::map<std::string, Waiting> waiting_;  // by gateway, as its latest heartbeat says
};

}  // namespace troupe::cluster
