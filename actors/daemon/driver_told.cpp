#include "actors/daemon/driver_told.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

namespace {

using Management = absl::StatusOr<std::shared_ptr<const gpu::GpuManagement>>;

absl::StatusOr<std::string> TopologyOf(const Management& management, std::uint32_t gpus) {
  if (!management.ok()) return management.status();
  return (*management)->Topology(gpus);
}

absl::StatusOr<std::unique_ptr<gpu::GpuWatch>> Watch(const Management& management) {
  if (!management.ok()) return management.status();
  return gpu::GpuWatch::Start(*management);
}

}  // namespace

absl::StatusOr<DriverTold> AskDriver(const DaemonConfig& config) {
  DriverTold told{config.gpus.topology, nullptr};
  if (config.gpus.device == "virtual") return told;
  const Management management = gpu::GpuManagement::OpenAsProgramsDo();
  if (config.gpus.topology == "auto") {
    auto found = TopologyOf(management, config.gpus.count);
    if (!found.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("--topology auto: ", found.status().message(), "; or write the topology out"));
    }
    told.topology = *std::move(found);
    spdlog::info("topology: {}", told.topology);
  }
  auto watch = Watch(management);
  if (watch.ok())
    told.watch = *std::move(watch);
  else
    spdlog::warn("the GPUs' health is not watched: {}", std::string(watch.status().message()));
  return told;
}

}  // namespace troupe::actors
