#include "gpu/nvml/management.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

// More processes than one GPU has room for.
constexpr unsigned kMostProcesses = 256;

template <class Function>
absl::Status FindCall(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("NVML has no ", name, "; update NVIDIA's driver"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const GpuManagement>> GpuManagement::Open(
    const std::string& library, const std::optional<std::string>& visible) {
  auto made = std::shared_ptr<GpuManagement>(new GpuManagement());
  TROUPE_RETURN_IF_ERROR(made->Start(library));
  TROUPE_RETURN_IF_ERROR(made->Find(visible));
  return made;
}

absl::StatusOr<std::shared_ptr<const GpuManagement>> GpuManagement::OpenAsProgramsDo() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return Open(kNvmlLibrary, visible == nullptr ? std::nullopt : std::optional<std::string>(visible));
}

GpuManagement::~GpuManagement() {
  if (started_) (void)calls_.nvmlShutdown();
}

absl::Status GpuManagement::Start(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();
    return absl::NotFoundError(absl::StrCat(library, " cannot be opened (",
                                            error == nullptr ? "no reason given" : error,
                                            "); install NVIDIA's driver"));
  }
#define TROUPE_NVML_FIND(name, takes) TROUPE_RETURN_IF_ERROR(FindCall(handle, #name, calls_.name));
  TROUPE_NVML_CALLS(TROUPE_NVML_FIND)
#undef TROUPE_NVML_FIND
  TROUPE_RETURN_IF_ERROR(FindCall(handle, "nvmlErrorString", calls_.nvmlErrorString));
  TROUPE_RETURN_IF_ERROR(Check(calls_.nvmlInit_v2(), "starting it"));
  started_ = true;
  return absl::OkStatus();
}

absl::Status GpuManagement::Check(nvml::Return result, const std::string& doing) const {
  if (result == nvml::kSuccess) return absl::OkStatus();
  const char* const text = calls_.nvmlErrorString(result);
  const auto what = absl::StrCat("NVML, ", doing, ": ", text == nullptr ? "error" : text, " (", result, ")");
  return result == nvml::kNotSupported ? absl::UnimplementedError(what) : absl::UnavailableError(what);
}

absl::Status GpuManagement::Find(const std::optional<std::string>& visible) {
  unsigned count = 0;
  TROUPE_RETURN_IF_ERROR(Check(calls_.nvmlDeviceGetCount_v2(&count), "counting the GPUs"));
  std::vector<nvml::Device> all(count);
  for (unsigned i = 0; i < count; ++i)
    TROUPE_RETURN_IF_ERROR(
        Check(calls_.nvmlDeviceGetHandleByIndex_v2(i, &all[i]), absl::StrCat("looking for GPU ", i)));
  if (!visible) {
    devices_ = std::move(all);
    return absl::OkStatus();
  }
  for (const absl::string_view item : absl::StrSplit(*visible, ',', absl::SkipWhitespace())) {
    const std::string name(item);
    unsigned number = 0;
    nvml::Device device = nullptr;
    if (absl::SimpleAtoi(name, &number) && number < count)
      device = all[number];
    else if (calls_.nvmlDeviceGetHandleByUUID(name.c_str(), &device) != nvml::kSuccess)
      return absl::FailedPreconditionError(absl::StrCat("CUDA_VISIBLE_DEVICES names '", name,
                                                        "', and this machine has ", count,
                                                        " GPUs; give their numbers or their whole ids"));
    devices_.push_back(device);
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> GpuManagement::Memory(std::uint32_t gpu) const {
  nvml::Memory memory{};
  TROUPE_RETURN_IF_ERROR(Check(calls_.nvmlDeviceGetMemoryInfo(devices_.at(gpu), &memory),
                               absl::StrCat("asking for GPU ", gpu, "'s memory")));
  return Bytes(memory.total);
}

absl::StatusOr<std::string> GpuManagement::Name(std::uint32_t gpu) const {
  std::array<char, 96> name{};
  TROUPE_RETURN_IF_ERROR(Check(calls_.nvmlDeviceGetName(devices_.at(gpu), name.data(), name.size()),
                               absl::StrCat("asking for GPU ", gpu, "'s name")));
  name.back() = 0;
  return std::string(name.data());
}

std::string GpuManagement::BusId(nvml::Device device) const {
  nvml::PciInfo info{};
  return calls_.nvmlDeviceGetPciInfo_v3(device, &info) == nvml::kSuccess ? info.id : "";
}

GpuManagement::NvLinks GpuManagement::LinksOf(std::uint32_t gpu, std::uint32_t gpus) const {
  NvLinks links;
  links.to.resize(gpus);
  const nvml::Device device = devices_[gpu];
  for (unsigned link = 0; link < nvml::kMostNvLinks; ++link) {
    int active = 0;
    int type = -1;
    if (calls_.nvmlDeviceGetNvLinkState(device, link, &active) != nvml::kSuccess || active == 0) continue;
    if (calls_.nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &type) != nvml::kSuccess) continue;
    if (type == nvml::kLinkToSwitch) ++links.to_switch;
    nvml::PciInfo remote{};
    if (type != nvml::kLinkToGpu ||
        calls_.nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &remote) != nvml::kSuccess)
      continue;
    for (std::uint32_t other = 0; other < gpus; ++other)
      if (BusId(devices_[other]) == remote.id) ++links.to[other];
  }
  nvml::FieldValue speed{};
  speed.field = nvml::kNvLinkMegabytesPerSecond;
  if (calls_.nvmlDeviceGetFieldValues(device, 1, &speed) == nvml::kSuccess && speed.status == nvml::kSuccess)
    links.speed = 1e6 * speed.value.as_unsigned;
  return links;
}

absl::StatusOr<std::string> GpuManagement::Topology(std::uint32_t gpus) const {
  if (gpus > devices_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(gpus, " GPUs are asked for, NVML finds ", devices_.size(), "; correct the number"));
  }
  std::vector<std::string> items;
  std::vector<bool> placed(gpus);
  for (std::uint32_t one = 0; one < gpus; ++one) {
    std::vector<std::uint32_t> together = {one};
    for (std::uint32_t other = one + 1; other < gpus && !placed[one]; ++other) {
      int level = 0;
      TROUPE_RETURN_IF_ERROR(
          Check(calls_.nvmlDeviceGetTopologyCommonAncestor(devices_[one], devices_[other], &level),
                absl::StrCat("asking what GPUs ", one, " and ", other, " have in common")));
      // Behind several switches they share the topmost one's way to the host all the same.
      if (level > nvml::kSeveralSwitches) continue;
      together.push_back(other);
      placed[other] = true;
    }
    if (together.size() > 1) items.push_back(absl::StrCat("switch:", absl::StrJoin(together, "-")));
  }
  std::vector<NvLinks> links;
  for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) links.push_back(LinksOf(gpu, gpus));
  for (std::uint32_t one = 0; one < gpus; ++one) {
    for (std::uint32_t other = one + 1; other < gpus; ++other) {
      const unsigned through = std::min(links[one].to_switch, links[other].to_switch);
      const double speed = (links[one].to[other] + through) * std::min(links[one].speed, links[other].speed);
      if (speed > 0)
        items.push_back(absl::StrCat("link:", one, "-", other, "=", static_cast<std::uint64_t>(speed), "B"));
    }
  }
  return items.empty() ? std::string("none") : absl::StrJoin(items, ",");
}

absl::StatusOr<std::vector<GpuHolder>> GpuManagement::Holders(std::uint32_t gpu) const {
  std::vector<nvml::Process> processes(kMostProcesses);
  unsigned count = kMostProcesses;
  TROUPE_RETURN_IF_ERROR(
      Check(calls_.nvmlDeviceGetComputeRunningProcesses_v3(devices_.at(gpu), &count, processes.data()),
            absl::StrCat("asking which processes use GPU ", gpu)));
  processes.resize(std::min(count, kMostProcesses));
  std::vector<GpuHolder> holders;
  for (const nvml::Process& process : processes) {
    std::array<char, 256> name{};
    if (calls_.nvmlSystemGetProcessName(process.pid, name.data(), name.size() - 1) != nvml::kSuccess)
      name[0] = 0;
    // In a container, or for another user's, the driver does not say how much.
    const bool known = process.memory != ~0ULL;
    holders.push_back({process.pid, name.data(), Bytes(known ? process.memory : 0)});
  }
  std::ranges::sort(holders, std::greater{}, &GpuHolder::memory);
  return holders;
}

std::string Describe(const std::vector<GpuHolder>& holders) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> shown;
  for (const GpuHolder& holder : holders) {
    if (shown.size() == kShown) break;
    std::string line = absl::StrCat("process ", holder.pid);
    if (!holder.name.empty()) absl::StrAppend(&line, " (", holder.name, ")");
    if (holder.memory > Bytes(0)) absl::StrAppend(&line, " has ", FormatBytes(holder.memory));
    shown.push_back(std::move(line));
  }
  if (holders.size() > kShown) shown.push_back(absl::StrCat(holders.size() - kShown, " more"));
  return absl::StrJoin(shown, ", ");
}

std::optional<unsigned> GpuManagement::RecoveryAction(nvml::Device device) const {
  nvml::FieldValue action{};
  action.field = nvml::kRecoveryAction;
  if (calls_.nvmlDeviceGetFieldValues(device, 1, &action) != nvml::kSuccess ||
      action.status != nvml::kSuccess)
    return std::nullopt;
  return action.value.as_unsigned;
}

// The driver's own word first; an older one has none, and GPUs without spare rows count their errors alone.
std::string GpuManagement::Problem(std::uint32_t gpu) const {
  const nvml::Device device = devices_.at(gpu);
  nvml::Memory memory{};
  if (calls_.nvmlDeviceGetMemoryInfo(device, &memory) == nvml::kGpuIsLost)
    return "it fell off the bus: the driver does not reach it any more";
  const std::optional<unsigned> action = RecoveryAction(device);
  if (action == nvml::kResetRequired) return "the driver says that it must be reset";
  if (action == nvml::kRebootRequired) return "the driver says that its machine must be started again";
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  const nvml::Return remapped =
      calls_.nvmlDeviceGetRemappedRows(device, &corrected, &uncorrected, &pending, &failed);
  if (remapped == nvml::kSuccess) {
    return failed == 0 ? std::string()
                       : absl::StrCat("a row of its memory failed and no spare row is left (", uncorrected,
                                      " were exchanged)");
  }
  unsigned long long errors = 0;
  const auto asked =
      calls_.nvmlDeviceGetTotalEccErrors(device, nvml::kUncorrected, nvml::kSinceDriverStart, &errors);
  if (action.has_value() || asked != nvml::kSuccess || errors == 0) return {};
  return absl::StrCat(errors, " uncorrectable ECC errors since the driver's start");
}

bool GpuManagement::Partitioned(std::uint32_t gpu) const {
  unsigned current = 0;
  unsigned pending = 0;
  return calls_.nvmlDeviceGetMigMode(devices_.at(gpu), &current, &pending) == nvml::kSuccess && current != 0;
}

std::string WhyInParts(int ordinal) {
  const auto management = GpuManagement::OpenAsProgramsDo();
  if (!management.ok() || ordinal < 0 || ordinal >= static_cast<int>((*management)->gpus())) return {};
  if (!(*management)->Partitioned(static_cast<std::uint32_t>(ordinal))) return {};
  return absl::StrCat("cuda:", ordinal,
                      " is cut into instances (MIG), and only whole GPUs are taken; nvidia-smi -i ", ordinal,
                      " -mig 0 makes it whole");
}

}  // namespace troupe::gpu
