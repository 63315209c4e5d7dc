// DEMAND COUNT: how often each model was asked for, since the last heartbeat and lately; and how long its runs had
// GPUs since then.
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
    ++since_[model].requests;
    lately_.Add(model, 1, now);
  }
  // A run of the model has ended; `gpu_time`: by its part of the SMs.
  void Ran(const DigestNumber& model, Duration gpu_time) { since_[model].gpu_time += gpu_time; }
  [[nodiscard]] double Lately(const DigestNumber& model, Time now) const { return lately_.Of(model, now); }
  // For a heartbeat, in the order of the models' digests.
  [[nodiscard]] google::protobuf::RepeatedPtrField<proto::ModelDemand> Take() {
    const auto since = std::exchange(since_, {});
    std::vector<std::pair<DigestNumber, Work>> models(since.begin(), since.end());
    std::ranges::sort(
        models, {}, [](const auto& model) -> const auto& { return model.first.text(); });
    google::protobuf::RepeatedPtrField<proto::ModelDemand> taken;
    for (const auto& [model, work] : models) {
      auto& one = *taken.Add();
      one.set_model_digest(model.text());
      one.set_requests(work.requests);
      one.set_gpu_ns(work.gpu_time.count());
    }
    return taken;
  }

 private:
  struct Work {
    std::uint64_t requests = 0;
    Duration gpu_time{};
  };

  absl::flat_hash_map<DigestNumber, Work> since_;  // of models that are adopted here
  cluster::DemandTable<DigestNumber> lately_;
};

}  // namespace troupe::node
