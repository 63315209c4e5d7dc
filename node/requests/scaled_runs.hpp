// SCALED RUNS: what the runs of functions whose instances follow their load answered, and how long they had GPUs: what the
// node's heartbeats tell the manager. Pure.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "proto/cluster.pb.h"

namespace troupe::node {

class ScaledRuns {
 public:
  // A run of the function has ended, and answered so many requests; `gpu_time`: by its part of the SMs.
  void Ran(const proto::FunctionKey& function, std::uint64_t answered, Duration gpu_time) {
    Work& work = since_[{function.name(), function.version()}];
    work.answered += answered;
    work.gpu_time += gpu_time;
  }
  // Since the call before.
  [[nodiscard]] google::protobuf::RepeatedPtrField<proto::FunctionDemand> Take() {
    google::protobuf::RepeatedPtrField<proto::FunctionDemand> told;
    for (const auto& [function, work] : std::exchange(since_, {})) {
      auto& demand = *told.Add();
      demand.mutable_key()->set_name(function.first);
      demand.mutable_key()->set_version(function.second);
      demand.set_served(work.answered);
      demand.set_gpu_ns(work.gpu_time.count());
    }
    return told;
  }

 private:
  struct Work {
    std::uint64_t answered = 0;
    Duration gpu_time{};
  };
  std::map<std::pair<std::string, std::string>, Work> since_;  // by name and version
};

}  // namespace troupe::node
