#include "node/state/write_backs.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/function_state.hpp"
#include "node/parts.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

namespace {

GpuIndex GpuOf(const WriteBackPurpose& purpose) {
  if (const auto* run = std::get_if<RunWrittenBack>(&purpose)) return run->start.dispatch.gpu;
  if (const auto* eviction = std::get_if<EvictionWrittenBack>(&purpose)) return eviction->gpu;
  if (const auto* orphan = std::get_if<OrphanWrittenBack>(&purpose)) return orphan->gpu;
  if (const auto* sequences = std::get_if<SequencesRecovered>(&purpose)) return sequences->gpu;
  if (const auto* leaving = std::get_if<StateLeaving>(&purpose)) return leaving->gpu;
  return std::get<RecoveryOrdered>(purpose).gpu;
}

absl::StatusOr<ImagePtr> RecoveredImage(const absl::Status& status, const std::vector<ImagePtr>& images) {
  if (!status.ok()) return status;
  if (images.empty()) return absl::NotFoundError("it has none");
  return images.front();
}

}  // namespace

void WriteBacks::Order(GpuIndex gpu, const ModelNumber& model, const StateNumber& function,
                       WriteBackPurpose purpose) {
  parts_.orders.GiveFor(model, gpu, WriteBackOrderFor(parts_.models.PackedDigest(model), function.text()),
                        std::move(purpose));
}

// Of a run only its own function's state: a sibling of the same model may have a run under way, which is not
// counted yet. States of functions that have gone on elsewhere, or were removed, may still lie there.
bool WriteBacks::Wants(const WriteBackPurpose& purpose, const proto::StateImage& image) const {
  if (std::holds_alternative<OrphanWrittenBack>(purpose)) return true;
  if (const auto* recovery = std::get_if<RecoveryOrdered>(&purpose))
    return image.function() == recovery->key.text();
  if (const auto* recovery = std::get_if<SequencesRecovered>(&purpose))
    return image.function().starts_with(cluster::SequencePrefix(recovery->function.text()));
  if (const auto* leaving = std::get_if<StateLeaving>(&purpose))
    return image.function() == leaving->key.text() && parts_.scheduler.states().Find(leaving->key) != nullptr;
  const auto function = parts_.names.FindState(image.function());
  const auto* state = parts_.scheduler.states().Find(function);
  const auto* eviction = std::get_if<EvictionWrittenBack>(&purpose);
  const bool unread = eviction != nullptr && parts_.states.IsUnread(eviction->gpu, eviction->model);
  if (state == nullptr) return unread;
  if (const auto* run = std::get_if<RunWrittenBack>(&purpose)) return function == run->start.dispatch.state;
  // What could not be kept when it was read may be newer than the file, but not than what has gone on elsewhere.
  return state->CurrentAt(GpuOf(purpose)) || (unread && state->gpu == kNoGpu);
}

void WriteBacks::On(const WriteBackPurpose& purpose, const proto::WorkerOutcome& outcome) {
  Batch batch{.purpose = purpose, .gpu = GpuOf(purpose), .status = StatusOf(outcome)};
  batch.slices = StateSlices(outcome);
  std::vector<proto::StateImage> wanted;
  for (const auto& image : outcome.state().states()) {
    if (!Wants(purpose, image)) continue;
    // This node was the home when the run began: what it has now is what the next home acknowledged.
    const bool elsewhere = parts_.replica_images.HasCopyOf(image.function());
    if (!elsewhere) wanted.push_back(image);
    if (elsewhere && std::holds_alternative<RunWrittenBack>(purpose))
      batch.status.Update(Replication::MayBeElsewhere());
  }
  if (wanted.empty()) return End(std::move(batch));
  batch.open = wanted.size();
  // What follows may order the model's eviction: its name has to be known until then.
  if (const auto* run = std::get_if<RunWrittenBack>(&purpose)) batch.model = run->start.dispatch.model;
  if (batch.model) parts_.models.BeginUse(batch.model, false);
  const auto number = ++last_batch_;
  batches_[number] = std::move(batch);
  for (auto& image : wanted) parts_.out.Add(SaveImage{number, std::move(image)});
}

void WriteBacks::On(ImageSaved& event) {
  const auto it = batches_.find(event.batch);
  if (it == batches_.end()) return;
  auto& batch = it->second;
  batch.status.Update(event.image.status());
  if (event.image.ok()) {
    parts_.replication.Changed((*event.image)->function(), false);
    batch.images.push_back(*std::move(event.image));
  }
  if (--batch.open > 0) return;
  const bool run = std::holds_alternative<RunWrittenBack>(batch.purpose);
  if (!run || !batch.status.ok() || batch.images.empty()) return Copied(event.batch, absl::OkStatus());
  const auto waits = parts_.replication.Await(batch.images.front()->function(), event.batch);
  if (!waits.ok() || !*waits) Copied(event.batch, waits.status());
}

void WriteBacks::Copied(std::uint64_t number, const absl::Status& status) {
  auto ended = batches_.extract(number);
  if (ended.empty()) return;
  ended.mapped().status.Update(status);
  End(std::move(ended.mapped()));
}

void WriteBacks::End(Batch batch) {
  parts_.requests.ReleaseSlices(batch.gpu, batch.slices);
  std::erase_if(batch.images, [this](const ImagePtr& image) {
    return parts_.replica_images.HasCopyOf(image->function());  // it came while these were written
  });
  if (const auto* recovery = std::get_if<RecoveryOrdered>(&batch.purpose)) {
    parts_.states.Recovered(*recovery, RecoveredImage(batch.status, batch.images));
  } else if (const auto* sequences = std::get_if<SequencesRecovered>(&batch.purpose)) {
    parts_.sequences.Recovered(*sequences, batch.status, batch.images);
  } else if (const auto* leaving = std::get_if<StateLeaving>(&batch.purpose)) {
    parts_.evictions.StateWritten(*leaving, batch.status, batch.images);
  } else if (const auto* orphan = std::get_if<OrphanWrittenBack>(&batch.purpose)) {
    parts_.orphans.StatesSaved(*orphan, batch.status, batch.images);
  } else if (const auto* eviction = std::get_if<EvictionWrittenBack>(&batch.purpose)) {
    parts_.evictions.StatesSaved(*eviction, batch.status, batch.images);
  } else {
    RunSaved(std::get<RunWrittenBack>(batch.purpose), batch.status, batch.images);
  }
  if (batch.model) parts_.models.EndUse(batch.model, false);
}

void WriteBacks::SaveRun(const HeldStart& start, proto::WorkerOutcome run) {
  const auto& dispatch = start.dispatch;
  Order(dispatch.gpu, dispatch.model, dispatch.state,
        RunWrittenBack{start, std::make_shared<proto::WorkerOutcome>(std::move(run))});
}

void WriteBacks::RunSaved(const RunWrittenBack& purpose, const absl::Status& status,
                          const std::vector<ImagePtr>& images) {
  const auto& dispatch = purpose.start.dispatch;
  // Its worker died meanwhile, and the run is planned again: on the state that it began with.
  auto* held = parts_.requests.Current(dispatch.request, purpose.start.serial);
  if (held == nullptr) {
    // When it has run again already, the file has the image of that run.
    if (!SavesRunOf(dispatch.state)) Restore(images);
    parts_.requests.ReleaseSlices(dispatch.gpu, UnsentSlices(*purpose.run, proto::InferReply()));
    return parts_.sequences.Left();  // it may go to the disk now
  }
  if (status.ok() && !images.empty()) {
    parts_.states.Keep(images);
    return parts_.dispatches.End(dispatch, *held, std::move(*purpose.run));
  }
  Restored(dispatch.state.text());
  parts_.dispatches.EndUnkept(dispatch, *held, std::move(*purpose.run),
                              status.ok() ? "nothing was written back" : std::string(status.message()));
}

bool WriteBacks::SavesRunOf(const StateNumber& state) const {
  return std::ranges::any_of(batches_, [&](const auto& batch) {
    const auto* run = std::get_if<RunWrittenBack>(&batch.second.purpose);
    return run != nullptr && run->start.dispatch.state == state;
  });
}

void WriteBacks::Restore(const std::vector<ImagePtr>& images) {
  for (const auto& image : images) Restored(image->function());
}

void WriteBacks::Restored(const std::string& image) {
  parts_.out.Add(RestoreImage{image});
  const auto key = parts_.names.FindState(image);
  parts_.replication.Changed(image, !key || parts_.states.ImageOf(key) == nullptr);
}

}  // namespace troupe::node
