// The virtual GPU: a device made of a memory file, threads and token buckets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/device/compute_profile.hpp"
#include "gpu/device/device.hpp"
#include "gpu/device/virtual_plan.hpp"
#include "transport/link_state.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

struct VirtualDeviceOptions {
  std::string name = "virtual:0";
  std::string pack_target;
  // Which links of the node are this device's: "gpu0:in", "gpu0:out".
  std::string link_in = "gpu0:in";
  std::string link_out = "gpu0:out";
  // And the link on which copies from another GPU come; null: it copies from none.
  std::function<std::string(std::uint32_t from)> link_from;
  std::string broadcast_socket;  // transport::LocalBroadcaster's
  // Times instead of results; without it `builder` makes the plans.
  std::optional<ComputeProfile> timed;
  PlanBuilder builder;
  ComputeProfile profile{};     // of plans with results: only how many of the SMs they can use counts
  int threads = 1;              // of each launch
  std::size_t concurrency = 1;  // launches at a time
  std::uint32_t sms = 132;      // of which timed launches can have a share; an H100 has as many
  Bytes reserved;               // the end of the memory file, which is not the device's
};

// One thread per copy engine, and one for each launch that computes at a time. Launches of timed plans share
// the engine evenly (ComputeShare). Without links copies take the time that memory takes. Everything that
// streams and plans refer to lives in the device: destroy them first. NotFound when the links lack this
// device's.
absl::StatusOr<std::unique_ptr<Device>> MakeVirtualDevice(VirtualDeviceOptions options,
                                                          transport::MemoryFile memory,
                                                          std::shared_ptr<transport::LinkBuckets> links);

}  // namespace troupe::gpu
