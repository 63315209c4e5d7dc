// A model as it lies in the host region, checked: what an order named, turned into memory that may be read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/worker.pb.h"
#include "transport/host_region.hpp"

namespace troupe::gpu {

using RegionPtr = std::shared_ptr<const transport::HostRegionView>;

struct HostModel {
  std::string digest;
  std::span<const std::byte> model;  // a serialised proto.Model
  std::span<const std::byte> weights;
  RegionPtr region;  // keeps the mapping
};

// A digest as an order gives it: 1 to 128 printable characters.
absl::Status CheckDigest(const std::string& digest);
// InvalidArgument or OutOfRange for a copy that is not in the region.
absl::StatusOr<HostModel> ResolveHostCopy(const RegionPtr& region, const proto::HostCopy& copy);

// Parses and checks the model itself: the weights lie in the blob, and the packing is for `pack_target` or
// for none. Slow for large models: on the preparation thread.
absl::StatusOr<proto::Model> ReadModel(const HostModel& host, const std::string& pack_target);

}  // namespace troupe::gpu
