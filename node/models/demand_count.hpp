// DEMAND COUNT: how often each model was asked for, since the last heartbeat and lately.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/demand_table.hpp"
#include "node/names.hpp"
#include "proto/cluster.pb.h"

namespace troupe::node {

class DemandCount {
 public:
  void Asked(const DigestNumber& model, Time now) {
    ++requests_[model];
    lately_.Add(model, 1, now);
  }
  [[nodiscard]] double Lately(const DigestNumber& model, Time now) const { return lately_.Of(model, now); }
  // For a heartbeat, in the order of the models' digests.
  [[nodiscard]] google::protobuf::RepeatedPtrField<proto::ModelDemand> Take() {
    const auto requests = std::exchange(requests_, {});
    std::vector<std::pair<DigestNumber, std::uint64_t>> models(requests.begin(), requests.end());
    std::ranges::sort(
        models, {}, [](const auto& model) -> const auto& { return model.first.text(); });
    google::protobuf::RepeatedPtrField<proto::ModelDemand> taken;
    for (const auto& [model, count] : models) {
      auto& one = *taken.Add();
      one.set_model_digest(model.text());
      one.set_requests(count);
    }
    return taken;
  }

 private:
  absl::flat_hash_map<DigestNumber, std::uint64_t> requests_;  // of models that are adopted here
  cluster::DemandTable<DigestNumber> lately_;
};

}  // namespace troupe::node
