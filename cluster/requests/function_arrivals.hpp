// FUNCTION ARRIVALS: how often a gateway was asked for each function whose instances follow their load, how many of these
// requests no node has taken yet, and how many ended late for a swap: what its heartbeats tell the manager. Pure.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "cluster/request_table.hpp"
#include "cluster/slo/slo_tracker.hpp"
#include "proto/cluster.pb.h"
#include "proto/gpu_sharing.hpp"

namespace troupe::cluster {

class FunctionArrivals {
 public:
  // Also when the request is refused, since too many wait.
  void Arrived(const proto::FunctionRecord& function) {
    if (proto::IsScaled(function.sharing())) ++SeenOf(function.key()).arrived;
  }
  // A request of a function that is scaled has its answer.
  void Ended(const EndedRequest& request) {
    if (!CountsForSlo(request.reply.code())) return;
    Seen& seen = SeenOf(request.reply.function());
    ++seen.ended;
    if (LateForSwap(request)) ++seen.late;
    seen.swapping += Duration(request.reply.times().swap_ns());
  }
  // Since the call before.
  [[nodiscard]] google::protobuf::RepeatedPtrField<proto::FunctionDemand> Take(const RequestTable& requests) {
    google::protobuf::RepeatedPtrField<proto::FunctionDemand> told;
    for (auto it = seen_.begin(); it != seen_.end();) {
      const auto& [name, version] = it->first;
      const std::uint64_t waiting = requests.WaitingOf(name, version);
      const Seen seen = std::exchange(it->second, {});
      if (seen.arrived == 0 && seen.ended == 0 && waiting == 0) {
        it = seen_.erase(it);
        continue;
      }
      auto& demand = *told.Add();
      demand.mutable_key()->set_name(name);
      demand.mutable_key()->set_version(version);
      demand.set_arrived(seen.arrived);
      demand.set_waiting(waiting);
      demand.set_ended(seen.ended);
      demand.set_late(seen.late);
      demand.set_swap_ns(seen.swapping.count());
      ++it;
    }
    return told;
  }

 private:
  struct Seen {
    std::uint64_t arrived = 0;
    std::uint64_t ended = 0, late = 0;
    Duration swapping{};
  };
  [[nodiscard]] Seen& SeenOf(const proto::FunctionKey& function) {
    return seen_[{function.name(), function.version()}];
  }

  std::map<std::pair<std::string, std::string>, Seen> seen_;  // by name and version
};

}  // namespace troupe::cluster
