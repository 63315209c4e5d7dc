// What a node is set up with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/policy.hpp"
#include "base/units.hpp"
#include "node/models/cache_table.hpp"
#include "node/scheduling/scheduler_types.hpp"
#include "node/scheduling/topology.hpp"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"
#include "proto/profile.pb.h"
#include "proto/usage.pb.h"
#include "scheduling/cost_model.hpp"

namespace troupe::node {

struct GpuSetup {
  std::string device;  // "virtual:0"
  Bytes memory;
  std::string kind = "virtual";  // GpuRecord.kind
};

// With whom functions share a worker, and how many workers stand on each GPU.
struct IsolationOptions {
  proto::Isolation mode = proto::ISOLATION_SHARED;  // of functions that do not say
  std::uint32_t runtimes = 1;                       // of each GPU, each with its part of the memory
  Duration idle = std::chrono::minutes(10);         // after which a runtime serves no key again
};

// When the device state of functions is written back to the host.
enum class StateWriteBack {
  kRun,    // before a run with state is answered
  kEvict,  // when its model leaves the device: a worker that dies takes the runs since then with it
};
// How a node learns what a model costs.
enum class MeasureRule {
  kRequests,  // from its requests only
  kAdoption,  // by runs of zeros, when it was adopted and the node is idle
};
// How what a dead worker held comes to GPUs again.
enum class RefillRule {
  kOnDemand,  // when it is asked for
  kHotFirst,  // by itself, to the other GPUs and the new worker, what is asked for most first
};

// What becomes of the weights on a GPU when its worker dies.
enum class KeepWeights {
  kOff,  // they have gone with it
  kOn,   // they may be there for the next worker: nothing of them is brought elsewhere before it is up
};

// How many sequences of requests have a state here.
struct SequenceLimits {
  std::uint64_t most = 10'000;
  std::uint64_t of_function = 5'000;
  Duration idle = std::chrono::hours(1);  // a sequence that is unused for so long ends
};

// What an operator sets once for a node: the daemon's configuration holds one of these.
struct NodeTuning {
  IsolationOptions isolation{};  // with several runtimes, or another mode than shared: scheduler.isolated
  SchedulerLimits scheduler{};
  StateWriteBack state_write_back = StateWriteBack::kRun;
  Bytes state_memory = MiB(256);  // of all images of states
  SequenceLimits sequences{};
  MeasureRule measure = MeasureRule::kRequests;
  RefillRule refill = RefillRule::kOnDemand;
  KeepWeights keep_weights = KeepWeights::kOff;
  std::uint64_t credits_per_gpu = 8;
};

struct NodeSettings : NodeTuning {
  std::string name;
  std::uint64_t incarnation = 0;  // of its daemon: another one has another
  std::vector<GpuSetup> gpus;
  PolicyNames policies;
  CacheLimits copies;            // of the host region
  Topology topology;             // of the GPUs, by their index here
  CostDefaults costs;            // until the node has learned better
  proto::NodeProfiles profiles;  // what it had learned when it ended
  bool keeps_profiles = false;   // what it learns is to be written (SaveProfiles)
  // Functions that it had adopted when it ended (only their records count). They are adopted again when no
  // manager was heard after `remember_after`.
  proto::ClusterUpdate remembered;
  bool keeps_adopted = false;  // what it adopts is to be written (SaveAdopted)
  Duration remember_after = std::chrono::seconds(1);
  Duration save_adopted_after = std::chrono::milliseconds(500);  // of a change: many come together
  bool meters = false;        // what functions use is counted, and told to the manager
  proto::NodeUsage usage;     // the ledger as its file has it, or a new one with a name
  bool usage_is_new = false;  // the file was not there, or was damaged
  Duration read_meters_every = std::chrono::seconds(1);
  Duration save_profiles_every = std::chrono::seconds(10);
  Duration save_again_after = std::chrono::seconds(10);  // of a save that failed: the disk is full
  // How long what a dead worker held waits for the next worker of its GPU, which may have it.
  Duration keeper_patience = std::chrono::seconds(2);
  // How long a worker that was adopted keeps models that this node has not been told of.
  Duration orphan_grace = std::chrono::seconds(3);
  // How long a broadcast of a model to several GPUs waits for more of them.
  Duration broadcast_gather = std::chrono::microseconds(500);
  Duration grant_every = std::chrono::milliseconds(20);  // changes of residency are told at most this often
  // A router is told at most this often what others have given the GPUs. If all routers hear late that a node is idle, all go there.
  Duration work_every = std::chrono::milliseconds(10);

  // The GPU on which a runtime stands, and how people call the runtime.
  [[nodiscard]] std::uint32_t DeviceOf(std::uint32_t runtime) const { return runtime / isolation.runtimes; }
  [[nodiscard]] std::string Label(std::uint32_t runtime) const {
    if (isolation.runtimes == 1) return absl::StrCat("GPU ", runtime);
    return absl::StrCat("GPU ", DeviceOf(runtime), ", runtime ", runtime % isolation.runtimes);
  }
};

}  // namespace troupe::node
