// GPU MANAGEMENT: what the driver says of this machine's GPUs beyond what a program computes on them: how
// they are wired, whether they are well, which processes hold their memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/nvml/nvml_calls.hpp"

namespace troupe::gpu {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

struct GpuHolder {
  std::uint32_t pid = 0;
  std::string name;
  Bytes memory;
};

// GPUs are numbered as `--device cuda:N` means them: in the order of the bus, among the GPUs that `visible`
// (CUDA_VISIBLE_DEVICES: numbers or ids with commas between them) leaves. Thread-safe.
class GpuManagement {
 public:
  // NotFound without the library; Unavailable when it does not start; FailedPrecondition when it is too old
  // or `visible` names what is not there.
  static absl::StatusOr<std::shared_ptr<const GpuManagement>> Open(
      const std::string& library = kNvmlLibrary, const std::optional<std::string>& visible = std::nullopt);
  // With what the environment says of visible ones.
  static absl::StatusOr<std::shared_ptr<const GpuManagement>> OpenAsProgramsDo();
  ~GpuManagement();
  GpuManagement(const GpuManagement&) = delete;
  GpuManagement& operator=(const GpuManagement&) = delete;

  [[nodiscard]] std::uint32_t gpus() const { return static_cast<std::uint32_t>(devices_.size()); }
  [[nodiscard]] absl::StatusOr<Bytes> Memory(std::uint32_t gpu) const;
  // "NVIDIA H100 PCIe".
  [[nodiscard]] absl::StatusOr<std::string> Name(std::uint32_t gpu) const;
  // Of the first `gpus`: which of them share a PCIe switch, and the NVLinks between them, directly or through
  // NVLink switches, as node/scheduling/topology.hpp reads it.
  [[nodiscard]] absl::StatusOr<std::string> Topology(std::uint32_t gpus) const;
  // The processes that have memory of it, those with the most first; names are empty where the driver keeps
  // them.
  [[nodiscard]] absl::StatusOr<std::vector<GpuHolder>> Holders(std::uint32_t gpu) const;
  // Why no new process could compute on this GPU; empty: nothing that the driver knows of. Errors of the memory
  // that the GPU has contained are none: it exchanges the row that failed, or will with its next reset.
  [[nodiscard]] std::string Problem(std::uint32_t gpu) const;
  // Whether it is cut into instances (MIG), so that programs do not see the whole of it.
  [[nodiscard]] bool Partitioned(std::uint32_t gpu) const;

 private:
  friend class GpuWatch;
  GpuManagement() = default;
  absl::Status Start(const std::string& library);
  absl::Status Find(const std::optional<std::string>& visible);
  [[nodiscard]] absl::Status Check(nvml::Return result, const std::string& doing) const;
  struct NvLinks {
    std::vector<unsigned> to;  // active ones, by GPU of ours
    unsigned to_switch = 0;
    double speed = 0;  // bytes per second of one of them, each direction
  };
  [[nodiscard]] NvLinks LinksOf(std::uint32_t gpu, std::uint32_t gpus) const;
  [[nodiscard]] std::string BusId(nvml::Device device) const;
  [[nodiscard]] std::optional<unsigned> RecoveryAction(nvml::Device device) const;

  nvml::Calls calls_;
  bool started_ = false;
  std::vector<nvml::Device> devices_;
};

// GPU WATCH: a thread that hears of critical errors, of the kinds that no new process mends. What it has
// heard of a GPU stays until the daemon is started again, because an operator has to look.
class GpuWatch {
 public:
  static absl::StatusOr<std::unique_ptr<GpuWatch>> Start(std::shared_ptr<const GpuManagement> management);
  ~GpuWatch();
  // What is wrong with a GPU; empty: nothing that is known.
  [[nodiscard]] std::string ProblemOf(std::uint32_t gpu) const;

 private:
  GpuWatch(std::shared_ptr<const GpuManagement> management, nvml::EventSet events);
  void Watch();
  void Note(std::uint32_t gpu, const std::string& problem);

  const std::shared_ptr<const GpuManagement> management_;
  const nvml::EventSet events_;
  mutable std::mutex mutex_;
  std::vector<std::string> problems_;  // guarded by mutex_
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// Why GPU `ordinal`, as OpenAsProgramsDo counts them, is none that a worker takes: it is cut into instances. Empty: it
// is whole, or the library is not there to tell.
[[nodiscard]] std::string WhyInParts(int ordinal);
// "process 4711 (python) has 3 GiB, ...": the first few.
[[nodiscard]] std::string Describe(const std::vector<GpuHolder>& holders);
// What an error with this number (Xid) is of: the program that ran, with which it ends; the GPU; or its memory,
// where the GPU itself says (GpuManagement::Problem) whether it is of use still.
enum class XidOf { kProgram, kMemory, kGpu };
[[nodiscard]] XidOf KindOf(std::uint64_t xid);

}  // namespace troupe::gpu
