// VIEW: what an operator sees of a node: its GPUs, its host region, its swaps and its models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node/events.hpp"
#include "proto/admin.pb.h"

namespace troupe::node {

struct Parts;

class View {
 public:
  View(const Parts& parts, std::size_t runtimes) : parts_(parts), seen_(runtimes) {}

  // All that the node itself knows.
  [[nodiscard]] proto::NodeDescription Describe(Time now) const;
  // What the worker of one runtime says of itself; those of one GPU add up.
  void AddWorker(GpuIndex gpu, proto::WorkerDescription& worker, proto::GpuStatus& status, Time now);
  // The share of the time in which a GPU computed, mean over the GPUs, as the workers said when they were last described
  // (each second, by a daemon). What was said longer ago counts as nothing.
  [[nodiscard]] double BusyShare(Time now) const;

 private:
  // What a worker said when it was last described, to tell shares of the time since.
  struct Seen {
    Time at{};
    std::int64_t busy_ns = 0;
    std::int64_t link_ns = 0;
    double busy_share = 0;
    double link_share = 0;
  };
  void AddFunction(const ModelNumber& copy, google::protobuf::RepeatedPtrField<std::string>& functions) const;
  void AddModels(GpuIndex gpu, Time now, proto::GpuStatus& status) const;
  void AddWork(GpuIndex gpu, Time now, proto::GpuStatus& status) const;
  void AddRuntime(GpuIndex gpu, Time now, proto::GpuStatus& status) const;
  void AddRegion(Time now, proto::HostRegionStatus& region) const;
  void AddShares(GpuIndex gpu, const proto::WorkerDescription& worker, proto::GpuStatus& status, Time now);

  const Parts& parts_;
  std::vector<Seen> seen_;  // by runtime
};

}  // namespace troupe::node
