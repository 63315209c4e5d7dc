#include "actors/daemon/driver_told.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

using Management = absl::StatusOr<std::shared_ptr<const gpu::GpuManagement>>;

absl::StatusOr<std::string> TopologyOf(const Management& management, std::uint32_t gpus) {
  if (!management.ok()) return management.status();
  return (*management)->Topology(gpus);
}

// A driver that does not say it leaves all GPUs of the device alike.
std::vector<std::string> KindsOf(const DaemonConfig& config, const Management* management) {
  std::vector<std::string> kinds = absl::StrSplit(config.gpus.kind, ',');
  if (config.gpus.kind.empty()) kinds = {std::string(NameIn(gpu::kDeviceKinds, config.gpus.device))};
  kinds.resize(config.gpus.count, kinds.front());
  if (!config.gpus.kind.empty() || management == nullptr || !management->ok()) return kinds;
  for (std::uint32_t gpu = 0; gpu < kinds.size(); ++gpu)
    if (auto name = (**management)->Name(gpu); name.ok()) kinds[gpu] = *std::move(name);
  return kinds;
}

absl::StatusOr<std::unique_ptr<gpu::GpuWatch>> Watch(const Management& management) {
  if (!management.ok()) return management.status();
  return gpu::GpuWatch::Start(*management);
}

}  // namespace

absl::StatusOr<DriverTold> AskDriver(const DaemonConfig& config) {
  DriverTold told{config.gpus.topology, KindsOf(config, nullptr), nullptr};
  if (config.gpus.device == gpu::DeviceKind::kVirtual) return told;
  const Management management = gpu::GpuManagement::OpenAsProgramsDo();
  told.kinds = KindsOf(config, &management);
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
