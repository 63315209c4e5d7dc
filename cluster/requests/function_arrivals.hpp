// FUNCTION ARRIVALS: how often a gateway was asked for each function whose instances follow their load, and how many of these
// requests no node has taken yet: what its heartbeats tell the manager. Pure.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "cluster/request_table.hpp"
#include "proto/cluster.pb.h"
#include "proto/gpu_sharing.hpp"

namespace troupe::cluster {

class FunctionArrivals {
 public:
  // Also when the request is refused, since too many wait.
  void Arrived(const proto::FunctionRecord& function) {
    if (proto::IsScaled(function.sharing())) ++asked_[{function.key().name(), function.key().version()}];
  }
  // Since the call before.
  [[nodiscard]] google::protobuf::RepeatedPtrField<proto::FunctionDemand> Take(const RequestTable& requests) {
    google::protobuf::RepeatedPtrField<proto::FunctionDemand> told;
    for (auto it = asked_.begin(); it != asked_.end();) {
      const auto& [name, version] = it->first;
      const std::uint64_t waiting = requests.WaitingOf(name, version);
      const std::uint64_t arrived = std::exchange(it->second, 0);
      if (arrived == 0 && waiting == 0) {
        it = asked_.erase(it);
        continue;
      }
      auto& demand = *told.Add();
      demand.mutable_key()->set_name(name);
      demand.mutable_key()->set_version(version);
      demand.set_arrived(arrived);
      demand.set_waiting(waiting);
      ++it;
    }
    return told;
  }

 private:
  std::map<std::pair<std::string, std::string>, std::uint64_t> asked_;  // by name and version
};

}  // namespace troupe::cluster
