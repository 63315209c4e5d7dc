// The node controller: what functions keep on the device. node::FunctionStates decides where, the store keeps
// images.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"
#include "base/check.hpp"

namespace troupe::actors {

void NodeController::Learn(const proto::ClusterUpdate& update) {
  const auto known = view_.revision();
  const auto change = view_.Apply(update);
  if (!change.applied) return session_.AskSince(this, known);
  for (const auto* keys : {&change.deployed, &change.removed})
    for (const auto& key : *keys) LearnFunction(key);
}

// New, changed, unloaded or gone. One that is unloaded keeps its state.
void NodeController::LearnFunction(const proto::FunctionKey& key) {
  const auto* record = view_.functions().Find(key);
  const bool has_state = record != nullptr && !record->state().empty();
  const auto* known = declared_.Find(key);
  if (known != nullptr && has_state && known->key == cluster::StateKey(*record)) return;
  if (known != nullptr) ForgetState(declared_.Remove(key));
  if (has_state) DeclareState(*record);
}

void NodeController::DeclareState(const proto::FunctionRecord& record) {
  auto& state = declared_.Add(record);
  state.model =
      node::CopyName(state.model, node::IsolationKey(record, options_.isolation.mode, std::string()));
  // Each tensor is there twice on a device, and rounded up.
  const auto bytes = cluster::StateBytes(record);
  const auto rounding = Bytes(512 * state.specs.size());
  state.failed = store_.Reserve(state.key, bytes);
  scheduler_.DeclareState(state.key, state.model, bytes * 2 + rounding);
  if (!state.failed.ok()) return Note("state-refused", std::string(state.failed.message()));
  scheduler_.HoldState(state.key, true);
  // A worker that outlived an earlier daemon may have it: its model came before the news of this function.
  for (node::GpuIndex gpu = 0; !options_.write_back_each_run && gpu < gpus_.size(); ++gpu)
    if (Up(gpu) && models_.Find(state.model) != nullptr &&
        scheduler_.FindResident(gpu, state.model) != nullptr)
      RecoverState(gpu, state.model, state.key);
  store_.Load(this, state.key, state.specs, [this, key = state.key](absl::StatusOr<KeptStatePtr> image) {
    StateLoaded(key, std::move(image));
  });
}

void NodeController::StateLoaded(const std::string& key, absl::StatusOr<KeptStatePtr> image) {
  auto* state = declared_.ByKey(key);
  if (state == nullptr) return;
  state->loading = false;
  const auto newer = store_.Find(key);  // from a living worker
  if (image.ok()) {
    if (newer == nullptr) KeepImages({*std::move(image)});
  } else if (!absl::IsNotFound(image.status()) && newer == nullptr && state->recovering == 0) {
    // Zeros would pass for the state: nobody runs until somebody decided that it begins anew.
    state->failed = absl::DataLossError(
        absl::StrCat(state->name, ": its state cannot be read (", image.status().message(),
                     "); remove the function and deploy it again to begin anew"));
    Note("state-damaged", std::string(state->failed.message()));
    return Handle(scheduler_.FailState(key, state->failed));  // and held for ever
  }
  LetRun(*state);
}

// With every run written back the file has all that was acknowledged: what a worker has beyond it was not.
void NodeController::RecoverStates(node::GpuIndex gpu, const std::string& digest) {
  if (options_.write_back_each_run) return;
  const auto keys = scheduler_.StatesOf(digest);
  for (const auto& key : keys) RecoverState(gpu, digest, key);
}

// Of one function: its model's other functions may not be known yet, and are asked for when they are.
void NodeController::RecoverState(node::GpuIndex gpu, const std::string& digest, const std::string& key) {
  ++declared_.ByKey(key)->recovering;
  scheduler_.HoldState(key, true);
  proto::WorkerOrder order = WriteBackOrderFor(models_.PackedDigest(digest), key);
  OrderFor(digest, gpu, std::move(order), [this, gpu, key](const proto::WorkerOutcome& outcome) {
    if (outcome.code() != 0 || outcome.state().states().empty())
      return Recovered(key, gpu,
                       outcome.code() == 0 ? absl::NotFoundError("it has none") : StatusOf(outcome));
    const auto wanted = [key](const proto::StateImage& image) { return image.function() == key; };
    SaveImages(gpu, outcome, wanted, [this, key, gpu](const absl::Status& status, const auto& images) {
      if (!status.ok()) return Recovered(key, gpu, status);
      Recovered(
          key, gpu,
          images.empty() ? absl::NotFoundError("it has none") : absl::StatusOr<KeptStatePtr>(images.front()));
    });
  });
}

void NodeController::Recovered(const std::string& key, node::GpuIndex gpu,
                               absl::StatusOr<KeptStatePtr> image) {
  auto* state = declared_.ByKey(key);
  if (state == nullptr || state->recovering == 0) return;
  --state->recovering;
  if (absl::IsUnavailable(image.status())) {
    Note("state-lost", absl::StrCat(state->name, ": the worker of ", Label(gpu),
                                    " died before what it had could be read; runs since it was last written "
                                    "back are lost, if there were any"));
  } else if (!image.ok() && !absl::IsNotFound(image.status()) && state->failed.ok()) {
    // The worker has it yet: to go on from the older file would lose what was acknowledged.
    state->failed = absl::FailedPreconditionError(
        absl::StrCat(state->name, ": the state that the worker of ", Label(gpu), " has could not be kept (",
                     image.status().message(),
                     "); give it room and restart this daemon, or remove the function and deploy it again "
                     "to begin anew"));
    Note("state-not-saved", std::string(state->failed.message()));
    return Handle(scheduler_.FailState(key, state->failed));
  }
  const auto known = store_.Find(key);
  if (image.ok()) {
    const bool newer = known == nullptr || known->image().runs() < (*image)->image().runs();
    newer ? KeepImages({*std::move(image)}) : store_.Restore(this, key);
  }
  LetRun(*state);
}

void NodeController::LetRun(const DeclaredState& state) {
  if (state.loading || state.recovering > 0 || !state.failed.ok()) return;
  const bool all_met = std::all_of(gpus_.begin(), gpus_.end(), [](const HeldGpu& gpu) { return gpu.met; });
  if (!options_.write_back_each_run && !all_met) return;
  scheduler_.HoldState(state.key, false);
  Pump();
}

void NodeController::Met(node::GpuIndex gpu) {
  if (std::exchange(gpus_[gpu].met, true)) return;
  std::vector<std::string> keys;
  declared_.ForEach([&](const DeclaredState& state) { keys.push_back(state.key); });
  for (const auto& key : keys)
    if (const auto* state = declared_.ByKey(key)) LetRun(*state);
}

void NodeController::ForgetState(const std::string& key) {
  Handle(scheduler_.ForgetState(key));
  store_.Forget(this, key);
}

KeptStatePtr NodeController::AddState(const std::string& key, proto::SwapInOrder& order) {
  auto image = store_.Find(key);
  if (image != nullptr) {
    *order.add_states() = image->image();
  } else if (const auto* state = declared_.ByKey(key)) {
    *order.add_states() = state->Zeros();
  }
  return image;
}

// Its images are safe when `then` is called, which keeps them or has the files restored. Of a run only its
// own function's: a sibling of the same model may have a run under way, which is not counted yet.
void NodeController::WriteBack(node::GpuIndex gpu, const std::string& model, const std::string& run,
                               OnSaved then) {
  OrderFor(model, gpu, WriteBackOrderFor(models_.PackedDigest(model), run),
           [this, gpu, run, then = std::move(then)](const proto::WorkerOutcome& outcome) {
             // States of functions that have gone on elsewhere, or were removed, may still lie there.
             const auto wanted = [&](const proto::StateImage& image) {
               const auto* state = scheduler_.states().Find(image.function());
               return state != nullptr && (run.empty() ? state->CurrentAt(gpu) : image.function() == run);
             };
             SaveImages(gpu, outcome, wanted, then);
           });
}

void NodeController::SaveImages(node::GpuIndex gpu, const proto::WorkerOutcome& outcome, const Wanted& wanted,
                                const OnSaved& then) {
  struct Saving {
    std::size_t open = 1;
    absl::Status status;
    std::vector<KeptStatePtr> images;
    proto::ReleaseOrder slices;
  };
  auto saving = std::make_shared<Saving>();
  saving->status = StatusOf(outcome);
  saving->slices = StateSlices(outcome);
  const auto close = [this, gpu, saving, then] {
    if (--saving->open > 0) return;
    ReleaseSlices(gpu, saving->slices);
    then(saving->status, saving->images);
  };
  for (const auto& image : outcome.state().states()) {
    if (!wanted(image)) continue;
    ++saving->open;
    store_.Save(this, image, [saving, close](absl::StatusOr<KeptStatePtr> kept) {
      saving->status.Update(kept.status());
      if (kept.ok()) saving->images.push_back(*std::move(kept));
      close();
    });
  }
  close();
}

void NodeController::KeepImages(const std::vector<KeptStatePtr>& images) {
  for (const auto& image : images) {
    auto* state = declared_.ByKey(image->image().function());
    if (state == nullptr) continue;
    state->runs = image->image().runs();
    store_.Keep(image);
  }
}

bool NodeController::HasStates(node::GpuIndex gpu, const std::string& model) const {
  const auto& of = scheduler_.StatesOf(model);
  return std::any_of(of.begin(), of.end(),
                     [&](const std::string& key) { return scheduler_.states().Find(key)->CurrentAt(gpu); });
}

// Written back first and then evicted, in two orders: whatever dies between them, the state is somewhere.
void NodeController::EvictWithStates(node::GpuIndex gpu, const std::string& model) {
  const auto life = gpus_[gpu].last.incarnation();
  ++gpus_[gpu].writing;
  models_.BeginUse(model);  // its name has to be known until the eviction is ordered
  WriteBack(gpu, model, "", [this, gpu, model, life](const absl::Status& status, const auto& images) {
    const bool same = gpus_[gpu].last.incarnation() == life && Up(gpu);
    same ? KeepImages(images) : RestoreImages(images);
    if (same && status.ok()) EvictModel(gpu, model, true);
    models_.EndUse(model);
    models_.Forget(model);
    if (!same || status.ok()) return;
    Note("state-not-saved", absl::StrCat(Label(gpu), ": ", status.message(), "; its model stays"));
    Written(gpu);
    Handle(scheduler_.Apply(node::EvictDone{gpu, model, status}, Now(this)));
  });
}

// What was decided for this GPU meanwhile may go on, in its order.
void NodeController::Written(node::GpuIndex gpu) {
  TROUPE_CHECK(gpus_[gpu].writing > 0, "more was written back than was begun");
  if (--gpus_[gpu].writing > 0) return;
  for (const auto& start : std::exchange(gpus_[gpu].behind, {})) start();
}

// They were saved, and what they hold does not count: the files are again what they were.
void NodeController::RestoreImages(const std::vector<KeptStatePtr>& images) {
  for (const auto& image : images) store_.Restore(this, image->image().function());
}

// A run counts as done when its state is safe: until then a worker that dies takes nothing with it.
void NodeController::SaveRun(const node::Dispatch& dispatch, std::uint64_t serial,
                             proto::WorkerOutcome outcome) {
  auto run = std::make_shared<proto::WorkerOutcome>(std::move(outcome));
  WriteBack(dispatch.gpu, dispatch.model, dispatch.state,
            [this, dispatch, serial, run](const absl::Status& status, const auto& images) {
              // Its worker died meanwhile, and the run is planned again: on the state that it began with.
              auto* held = Current(dispatch.request, serial);
              if (held == nullptr) {
                RestoreImages(images);
                return ReleaseSlices(dispatch.gpu, UnsentSlices(*run, proto::InferReply()));
              }
              if (status.ok() && !images.empty()) {
                KeepImages(images);
                return Ended(dispatch, *held, std::move(*run));
              }
              store_.Restore(this, dispatch.state);
              NotKept(dispatch, *held, std::move(*run),
                      status.ok() ? "nothing was written back" : std::string(status.message()));
            });
}

void NodeController::NotKept(const node::Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome run,
                             const std::string& why) {
  held.spoiled_state = true;
  run.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  run.set_message(
      absl::StrCat("the run's state could not be kept, and is as it was before: ", why, "; try again"));
  Ended(dispatch, held, std::move(run));
}

void NodeController::StatesLost(node::GpuIndex gpu) {
  declared_.ForEach([&](DeclaredState& state) {
    const auto* where = scheduler_.states().Find(state.key);
    if (where == nullptr || !where->CurrentAt(gpu)) return;
    const auto image = store_.Find(state.key);
    const auto safe = image == nullptr ? 0 : image->image().runs();
    if (state.runs > safe) {
      Note("state-lost", absl::StrCat(state.name, ": the worker of ", Label(gpu),
                                      " died with its state; the ", state.runs - safe,
                                      " runs since it was last written back are lost, it "
                                      "goes on from run ",
                                      safe));
    }
    state.runs = safe;
  });
}

// As models are shown: by their function, on the GPU or (kNoGpu) in this host's memory.
void NodeController::ShowStates(node::GpuIndex gpu, const std::function<void(const StateShown&)>& show) {
  declared_.ForEach([&](const DeclaredState& state) {
    const auto* where = scheduler_.states().Find(state.key);
    const auto image = store_.Find(state.key);
    const bool host = gpu == node::kNoGpu && image != nullptr;
    if (!host && (where == nullptr || gpu == node::kNoGpu || !where->CurrentAt(gpu))) return;
    Bytes bytes = host ? Bytes() : where->bytes;
    for (int i = 0; host && i < image->image().tensors_size(); ++i)
      bytes += transport::SizeOf(image->image().tensors(i).data());
    show({state.model, state.name, bytes});
  });
}

// The model leaves this node. State does not travel between nodes.
void NodeController::TellStatesStay(const std::string& model) {
  declared_.ForEach([&](const DeclaredState& state) {
    if (state.model != model || (state.runs == 0 && store_.Find(state.key) == nullptr)) return;
    Note("state-stays", absl::StrCat(state.name, ": its model was taken off this node, and its state of ",
                                     state.runs, " runs stays here"));
  });
}

}  // namespace troupe::actors
