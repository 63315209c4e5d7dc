// Runs by layer: their model is not on the device, before or after. Its weights come from the host copy
// through a window of device memory while the run computes.
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/worker/runner.hpp"

namespace troupe::gpu {

absl::Status Runner::AcceptByLayer(Run& run) {
  const proto::RunOrder& order = run.request.order;
  if (!run.request.host) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a run of model ", order.digest(), " by layer has to name the host copy that its weights come from"));
  }
  // The request is not at fault: the node brings the model, and orders the run again.
  if (!order.stateful().empty()) {
    return absl::NotFoundError(absl::StrCat("model ", order.digest(),
                                            " is not on this device, and the state of '", order.stateful(),
                                            "' comes with it: swap it in first"));
  }
  run.by_layer = true;
  ++layered_;
  return absl::OkStatus();
}

void Runner::BeginLayers(Id id, Run& run) {
  LayerLoad::Calls calls;
  calls.begun = [this] { queue_.Post([this] { Advance(); }); };
  calls.landed = [this, id](const absl::Status& status) {
    queue_.Post([this, id, status] { LayersLanded(id, status); });
  };
  run.layers = std::make_shared<LayerLoad>(needs_.WindowOf(run.plan, links_.curve().elbow), *run.request.host,
                                           *run.window, run.request.sequence, run.request.deadline, calls);
  run.load = run.layers->load();
  run.arguments.pieces = run.layers->Pieces();
  const Bytes bytes = run.layers->window().bytes;
  run.bytes += bytes.count();
  bytes_in_ += bytes;
  run.layers->Send(0, links_.in());
}

void Runner::LayersLanded(Id id, const absl::Status& status) {
  Run* run = Find(id);
  if (run == nullptr) return;  // it has had all its weights, and is answered
  run->layers->Landed();
  // The gate of a run that computes tells it.
  const bool computing = run->stage == Run::Stage::kComputing;
  if (!status.ok() && run->failed.ok() && !computing) run->failed = status;
  if (run->failed.ok() || !run->layers->quiet()) return;
  const absl::Status why = run->failed;
  if (run->stage == Run::Stage::kLeaving) return Left(id, why);
  if (run->stage == Run::Stage::kReady) GiveUp(id, why);
}

// True when a run that is given up has to wait until nothing reads its host copy, or writes its window, any
// more.
bool Runner::LayersComing(Run& run, const absl::Status& why) {
  if (run.layers == nullptr) return false;
  run.layers->Stop(why);
  if (run.layers->quiet()) return false;
  run.failed = why;
  return true;
}

}  // namespace troupe::gpu
