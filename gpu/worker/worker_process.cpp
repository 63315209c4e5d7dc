#include "gpu/worker/worker_process.hpp"

#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {

std::vector<std::string> WorkerCommand::Arguments() const {
  std::vector<std::string> arguments = {program,
                                        "--device",
                                        device,
                                        "--socket",
                                        socket,
                                        "--node",
                                        node,
                                        "--gpu",
                                        absl::StrCat(gpu),
                                        "--compute",
                                        std::string(NameIn(kComputeModes, compute)),
                                        "--addresses",
                                        std::string(NameIn(kWeightAddresses, addresses)),
                                        "--cuda-graphs",
                                        std::string(NameIn(kRepeatedLaunches, repeated)),
                                        "--cuda-kernels",
                                        std::string(NameIn(kKernelForms, kernels)),
                                        "--threads",
                                        absl::StrCat(threads),
                                        "--concurrency",
                                        absl::StrCat(concurrency),
                                        "--lease",
                                        absl::StrCat(lease.count(), "ns"),
                                        "--arena",
                                        absl::StrCat(arena.count())};
  if (!profile.empty()) arguments.insert(arguments.end(), {"--profile", profile});
  if (sms > 0) arguments.insert(arguments.end(), {"--sms", absl::StrCat(sms)});
  if (allow_faults) arguments.push_back("--allow-faults");
  if (!memory.empty()) arguments.insert(arguments.end(), {"--memory", memory});
  if (quota > Bytes(0)) arguments.insert(arguments.end(), {"--quota", absl::StrCat(quota.count())});
  if (!swap.empty()) arguments.insert(arguments.end(), {"--swap", swap});
  if (!link_sharing.empty()) arguments.insert(arguments.end(), {"--link-sharing", link_sharing});
  if (!gate.empty())
    arguments.insert(arguments.end(), {"--gate", gate, "--gate-slot", absl::StrCat(gate_slot)});
  if (!sharing.empty()) arguments.insert(arguments.end(), {"--sharing", sharing});
  if (!intermediates.empty()) arguments.insert(arguments.end(), {"--intermediates", intermediates});
  if (quota_window > Duration(0))
    arguments.insert(arguments.end(), {"--quota-window", absl::StrCat(quota_window.count(), "ns")});
  if (group > Bytes(0)) arguments.insert(arguments.end(), {"--group", absl::StrCat(group.count())});
  if (block > Bytes(0)) arguments.insert(arguments.end(), {"--block", absl::StrCat(block.count())});
  if (batch > 0) arguments.insert(arguments.end(), {"--batch", absl::StrCat(batch)});
  return arguments;
}

namespace {

// How often a thread looks for the others of its run before it sleeps: some 10 us, where waking it costs 40. More brings little
// to a run that has the cores for itself, and takes them from other runs (docs/measurements.md, Two threads).
constexpr char kLooks[] = "1000";

}  // namespace

// Threads that wait awake would take the cores from other workers, where there are not enough for all.
std::vector<std::pair<std::string, std::string>> WorkerCommand::Environment() const {
  std::vector<std::pair<std::string, std::string>> environment = {{"OMP_WAIT_POLICY", "passive"},
                                                                  {"OMP_NUM_THREADS", absl::StrCat(threads)}};
  if (cores_for_all && threads > 1) environment.emplace_back("GOMP_SPINCOUNT", kLooks);
  return environment;
}

absl::StatusOr<transport::ProcessHandle> StartWorker(const WorkerCommand& command) {
  transport::SpawnOptions options;
  options.arguments = command.Arguments();
  options.environment = command.Environment();
  options.log = command.log;
  return transport::SpawnProcess(options);
}

absl::StatusOr<transport::MemoryFile> CreateVirtualMemory(std::uint32_t gpu, Bytes size) {
  return transport::MemoryFile::Create(absl::StrCat("troupe-gpu", gpu), size);
}

void TouchMemory(const transport::MemoryFile& memory) {
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at < memory.size().count(); at += kPage) {
    // Atomically adding nothing: a worker may already be using the page.
    __atomic_fetch_or(reinterpret_cast<unsigned char*>(memory.data() + at), 0, __ATOMIC_RELAXED);
  }
}

std::string LinkInName(std::uint32_t gpu) {
  return absl::StrCat("gpu", gpu, ":in");
}
std::string LinkOutName(std::uint32_t gpu) {
  return absl::StrCat("gpu", gpu, ":out");
}
std::string PeerLinkName(std::uint32_t from, std::uint32_t to) {
  return absl::StrCat("gpu", from, ":gpu", to);
}

absl::StatusOr<transport::LinkBuckets> CreateNodeLinks(
    std::uint32_t gpus, BytesPerSecond bandwidth, const std::vector<std::vector<std::uint32_t>>& switches,
    const std::vector<PeerLink>& peers, Duration copy_time) {
  std::vector<transport::LinkConfig> links;
  std::map<std::uint32_t, std::string> behind;
  for (std::size_t i = 0; i < switches.size(); ++i) {
    const std::string name = absl::StrCat("switch", i);
    for (const char* direction : {":in", ":out"})
      links.push_back({.name = name + direction, .bandwidth = bandwidth});
    for (const std::uint32_t gpu : switches[i]) behind[gpu] = name;
  }
  for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
    const auto at = behind.find(gpu);
    const auto switch_of = [&](const char* direction) {
      return at == behind.end() ? std::string() : at->second + direction;
    };
    links.push_back({.name = LinkInName(gpu), .bandwidth = bandwidth, .behind = switch_of(":in")});
    links.push_back({.name = LinkOutName(gpu), .bandwidth = bandwidth, .behind = switch_of(":out")});
  }
  for (const PeerLink& peer : peers) {
    links.push_back({.name = PeerLinkName(peer.a, peer.b), .bandwidth = peer.bandwidth});
    links.push_back({.name = PeerLinkName(peer.b, peer.a), .bandwidth = peer.bandwidth});
  }
  for (auto& link : links) link.copy_time = copy_time;
  return transport::LinkBuckets::Create(links);
}

}  // namespace troupe::gpu
