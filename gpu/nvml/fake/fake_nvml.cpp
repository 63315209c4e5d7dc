// A management library without a driver: the calls of gpu/nvml/nvml_calls.hpp over what a text file says,
// which is read anew by each call. For tests, as libnvidia-ml.so.1. TROUPE_FAKE_NVML names the file; without
// one there are two GPUs that have nothing in common, and all is well. Its lines:
//   gpus 4
//   switch 0 1           these two are behind one PCIe switch
//   link 0 1 4 25000     four NVLinks between them, each of so many MB/s
//   nvswitch 0 18 26562  eighteen to the NVLink switch
//   ecc 0 3              uncorrectable errors; without a line the GPU has no ECC
//   remap 0 1 0          it exchanges rows of its memory: so many wait for a reset, so many could not be exchanged
//   recovery 0 1         what the driver wants done (1: a reset); without a line the driver does not say
//   mig 0                it is cut into instances
//   lost 0               it fell off the bus
//   xid 1 79             a critical error, told once
//   holder 0 4711 python 1000000000
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/nvml/nvml_calls.hpp"

namespace nvml = troupe::gpu::nvml;

namespace {

struct Holder {
  unsigned pid = 0;
  std::string name;
  unsigned long long memory = 0;
};
struct Links {
  unsigned count = 0;
  unsigned speed = 0;
};
struct Machine {
  unsigned gpus = 2;
  std::set<std::pair<unsigned, unsigned>> switches;
  std::map<std::pair<unsigned, unsigned>, Links> links;
  std::map<unsigned, Links> to_switch;
  std::map<unsigned, unsigned long long> ecc;
  std::map<unsigned, std::pair<unsigned, unsigned>> remaps;
  std::map<unsigned, unsigned> recoveries;
  std::set<unsigned> mig;
  std::set<unsigned> lost;
  std::vector<std::pair<unsigned, unsigned long long>> xids;
  std::map<unsigned, std::vector<Holder>> holders;
};

Machine Read() {
  Machine machine;
  const char* const path = std::getenv("TROUPE_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what;
    unsigned one = 0;
    unsigned other = 0;
    words >> what >> one;
    if (what == "gpus") machine.gpus = one;
    if (what == "switch" && words >> other) machine.switches.insert(std::minmax(one, other));
    if (what == "link" && words >> other) {
      Links& links = machine.links[std::minmax(one, other)];
      words >> links.count >> links.speed;
    }
    if (what == "nvswitch") words >> machine.to_switch[one].count >> machine.to_switch[one].speed;
    if (what == "ecc") words >> machine.ecc[one];
    if (what == "remap") words >> machine.remaps[one].first >> machine.remaps[one].second;
    if (what == "recovery") words >> machine.recoveries[one];
    if (what == "mig") machine.mig.insert(one);
    if (what == "lost") machine.lost.insert(one);
    if (what == "xid" && words >> other) machine.xids.emplace_back(one, other);
    if (what == "holder") {
      Holder holder;
      words >> holder.pid >> holder.name >> holder.memory;
      machine.holders[one].push_back(holder);
    }
  }
  return machine;
}

std::mutex told_mutex;
std::size_t told = 0;  // of the xids

unsigned Number(nvml::Device device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}
nvml::Device DeviceOf(unsigned gpu) {
  return reinterpret_cast<nvml::Device>(std::uintptr_t{gpu} + 1);
}
// Links by number: those to other GPUs first, then those to the switch.
std::vector<int> Ends(const Machine& machine, unsigned gpu) {
  std::vector<int> ends;
  for (const auto& [pair, links] : machine.links) {
    if (pair.first != gpu && pair.second != gpu) continue;
    ends.insert(ends.end(), links.count, static_cast<int>(pair.first == gpu ? pair.second : pair.first));
  }
  if (const auto found = machine.to_switch.find(gpu); found != machine.to_switch.end())
    ends.insert(ends.end(), found->second.count, -1);
  return ends;
}
void Fill(unsigned gpu, nvml::PciInfo& info) {
  std::memset(&info, 0, sizeof(info));
  const std::string id = "00000000:" + std::to_string(10 + gpu) + ":00.0";
  std::memcpy(info.id, id.c_str(), id.size());
  info.bus = 10 + gpu;
}

}  // namespace

extern "C" {

nvml::Return nvmlInit_v2() {
  return nvml::kSuccess;
}
nvml::Return nvmlShutdown() {
  return nvml::kSuccess;
}
const char* nvmlErrorString(nvml::Return) {
  return "of the fake library";
}
nvml::Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = Read().gpus;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Device* device) {
  *device = DeviceOf(index);
  return index < Read().gpus ? nvml::kSuccess : 2;
}
nvml::Return nvmlDeviceGetHandleByUUID(const char* id, nvml::Device* device) {
  for (unsigned gpu = 0; gpu < Read().gpus; ++gpu) {
    if ("GPU-" + std::to_string(gpu) != id) continue;
    *device = DeviceOf(gpu);
    return nvml::kSuccess;
  }
  return 6;
}
nvml::Return nvmlDeviceGetPciInfo_v3(nvml::Device device, nvml::PciInfo* info) {
  Fill(Number(device), *info);
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetMemoryInfo(nvml::Device device, nvml::Memory* memory) {
  if (Read().lost.contains(Number(device))) return nvml::kGpuIsLost;
  *memory = {256ULL << 20, 256ULL << 20, 0};
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetName(nvml::Device, char* name, unsigned length) {
  constexpr char kName[] = "NVIDIA Fake 256";
  if (length < sizeof(kName)) return nvml::kInsufficientSize;
  std::memcpy(name, kName, sizeof(kName));
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetTopologyCommonAncestor(nvml::Device one, nvml::Device other, int* level) {
  const bool together = Read().switches.contains(std::minmax(Number(one), Number(other)));
  *level = together ? nvml::kOneSwitch : 40;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetNvLinkState(nvml::Device device, unsigned link, int* active) {
  *active = link < Ends(Read(), Number(device)).size() ? 1 : 0;
  return link < nvml::kMostNvLinks ? nvml::kSuccess : 2;
}
nvml::Return nvmlDeviceGetNvLinkRemoteDeviceType(nvml::Device device, unsigned link, int* type) {
  *type = Ends(Read(), Number(device)).at(link) < 0 ? nvml::kLinkToSwitch : nvml::kLinkToGpu;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml::Device device, unsigned link, nvml::PciInfo* info) {
  const int end = Ends(Read(), Number(device)).at(link);
  if (end < 0) return nvml::kNotSupported;
  Fill(static_cast<unsigned>(end), *info);
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetFieldValues(nvml::Device device, int count, nvml::FieldValue* values) {
  const Machine machine = Read();
  if (count == 1 && values->field == nvml::kRecoveryAction) {
    const auto found = machine.recoveries.find(Number(device));
    values->status = found == machine.recoveries.end() ? nvml::kNotSupported : nvml::kSuccess;
    if (found != machine.recoveries.end()) values->value.as_unsigned = found->second;
    return nvml::kSuccess;
  }
  if (count != 1 || values->field != nvml::kNvLinkMegabytesPerSecond) return nvml::kNotSupported;
  values->status = nvml::kNotSupported;
  for (const auto& [pair, links] : machine.links) {
    if (pair.first != Number(device) && pair.second != Number(device)) continue;
    values->status = nvml::kSuccess;
    values->value.as_unsigned = links.speed;
  }
  if (const auto found = machine.to_switch.find(Number(device)); found != machine.to_switch.end()) {
    values->status = nvml::kSuccess;
    values->value.as_unsigned = found->second.speed;
  }
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetTotalEccErrors(nvml::Device device, int type, int counter,
                                         unsigned long long* errors) {
  const Machine machine = Read();
  const auto found = machine.ecc.find(Number(device));
  if (found == machine.ecc.end()) return nvml::kNotSupported;
  *errors = type == nvml::kUncorrected && counter == nvml::kSinceDriverStart ? found->second : 0;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetRemappedRows(nvml::Device device, unsigned* corrected, unsigned* uncorrected,
                                       unsigned* pending, unsigned* failed) {
  const Machine machine = Read();
  const auto found = machine.remaps.find(Number(device));
  if (found == machine.remaps.end()) return nvml::kNotSupported;
  *corrected = 0;
  *uncorrected = found->second.first;
  *pending = found->second.first > 0 ? 1 : 0;
  *failed = found->second.second > 0 ? 1 : 0;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetMigMode(nvml::Device device, unsigned* current, unsigned* pending) {
  *current = *pending = Read().mig.contains(Number(device)) ? 1 : 0;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetComputeRunningProcesses_v3(nvml::Device device, unsigned* count,
                                                     nvml::Process* all) {
  Machine machine = Read();
  const auto& holders = machine.holders[Number(device)];
  if (*count < holders.size()) {
    *count = static_cast<unsigned>(holders.size());
    return nvml::kInsufficientSize;
  }
  *count = static_cast<unsigned>(holders.size());
  for (const Holder& holder : holders) *all++ = {holder.pid, holder.memory, ~0U, ~0U};
  return nvml::kSuccess;
}
nvml::Return nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  for (const auto& [gpu, holders] : Read().holders) {
    for (const Holder& holder : holders) {
      if (holder.pid != pid || holder.name.size() >= length) continue;
      std::memcpy(name, holder.name.c_str(), holder.name.size() + 1);
      return nvml::kSuccess;
    }
  }
  return 6;
}
nvml::Return nvmlEventSetCreate(nvml::EventSet* set) {
  *set = reinterpret_cast<nvml::EventSet>(new std::set<nvml::Device>);
  return nvml::kSuccess;
}
nvml::Return nvmlEventSetFree(nvml::EventSet set) {
  delete reinterpret_cast<std::set<nvml::Device>*>(set);
  return nvml::kSuccess;
}
// As the real one: one without ECC does not tell of its errors.
nvml::Return nvmlDeviceRegisterEvents(nvml::Device device, unsigned long long types, nvml::EventSet set) {
  if ((types & nvml::kDoubleBitError) != 0 && !Read().ecc.contains(Number(device)))
    return nvml::kNotSupported;
  reinterpret_cast<std::set<nvml::Device>*>(set)->insert(device);
  return nvml::kSuccess;
}
nvml::Return nvmlEventSetWait_v2(nvml::EventSet set, nvml::Event* event, unsigned milliseconds) {
  const auto& devices = *reinterpret_cast<std::set<nvml::Device>*>(set);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  do {
    const Machine machine = Read();
    const std::lock_guard lock(told_mutex);
    while (told < machine.xids.size()) {
      const auto& [gpu, xid] = machine.xids[told++];
      if (!devices.contains(DeviceOf(gpu))) continue;
      *event = {DeviceOf(gpu), nvml::kCriticalXid, xid, ~0U, ~0U};
      return nvml::kSuccess;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < until);
  return nvml::kTimeout;
}

}  // extern "C"
