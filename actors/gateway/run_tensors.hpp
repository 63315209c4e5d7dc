// RUN TENSORS: how the values of a run travel: from the client and the nodes (Fetch), into the run log
// (Store), and out of it again (Load) when a run goes on that was begun before. Owned by one workflow run, in
// whose thread everything happens; every answer comes once, none after Clear.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/gateway/run_values.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "actors/interfaces/router.hpp"
#include "actors/interfaces/workflow_run.hpp"
#include "base/wire_status.hpp"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

using RunSelf =
    WorkflowRunActor::extend<Hears<proto::Continue>, Hears<proto::Tick>,
                             caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>, Hears<proto::PeerLost>>;

class RunTensors {
 public:
  struct Limits {
    Duration timeout;            // of one question to the manager, one transfer
    std::uint64_t inline_bytes;  // larger tensors become blobs of the manager
    bool logged = true;          // false: the run is in no log, so Store has nothing to write
    std::uint64_t part_bytes = 8u << 20;
  };
  using Stored = google::protobuf::RepeatedPtrField<proto::StoredTensor>;
  using Values = std::vector<RunValue>;
  template <class T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // `self` owns it and resumes it on proto::Continue; `channel` outlives both.
  RunTensors(RunSelf::pointer self, PendingCalls& calls, RouterActor router, ClusterManagerActor manager,
             transport::TensorChannel& channel, Limits limits)
      : self_(self),
        calls_(calls),
        router_(std::move(router)),
        manager_(std::move(manager)),
        channel_(channel),
        limits_(limits) {}

  void Fetch(const proto::Tensor& tensor, Done<RunValue> done);
  // The bytes of a value that a node keeps. DataLoss: it does not keep it any more.
  void FetchKept(const RunValue& value, Done<RunValue> done);
  // Tensors as the run log keeps them: inline, or as blobs that are synced first; or only where they were, for what a
  // node keeps.
  void Store(const Values& values, Done<Stored> done);
  // NotFound: one of them was kept by a node, for the process that committed it.
  void Load(const Stored& tensors, Done<Values> done);

  // It was lost, or is another; empty: questions fail until it is back.
  void SetManager(ClusterManagerActor manager) { manager_ = std::move(manager); }
  void Resume(const proto::Continue& message) { continuations_.Resume(message); }
  void Clear() {
    continuations_.Clear();
    router_ = RouterActor();
    manager_ = ClusterManagerActor();
  }

 private:
  void FetchParts(const RunValue& value, Done<RunValue> done);
  void StoreBlob(const RunValue& value, Done<std::string> done);
  void LoadBlob(const std::string& digest, std::shared_ptr<std::string> bytes, Done<std::string> done);
  void Read(const proto::TensorRef& ref, Done<std::string> done);

  const RunSelf::pointer self_;
  PendingCalls& calls_;
  RouterActor router_;
  ClusterManagerActor manager_;
  transport::TensorChannel& channel_;
  const Limits limits_;
  Continuations continuations_;
};

}  // namespace troupe::actors
