// DEMAND COUNT: how often each model was asked for, since the last heartbeat and lately.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "cluster/demand_table.hpp"
#include "proto/cluster.pb.h"

namespace troupe::node {

class DemandCount {
 public:
  void Asked(const std::string& digest, Time now) {
    ++requests_[digest];
    lately_.Add(digest, 1, now);
  }
  [[nodiscard]] double Lately(const std::string& digest, Time now) const { return lately_.Of(digest, now); }
  // For a heartbeat.
  [[nodiscard]] google::protobuf::RepeatedPtrField<proto::ModelDemand> Take() {
    google::protobuf::RepeatedPtrField<proto::ModelDemand> taken;
    for (const auto& [digest, requests] : std::exchange(requests_, {})) {
      auto& one = *taken.Add();
      one.set_model_digest(digest);
      one.set_requests(requests);
    }
    return taken;
  }

 private:
  std::map<std::string, std::uint64_t> requests_;  // of models that are adopted here
  cluster::DemandTable lately_;
};

}  // namespace troupe::node
