#include "node/state/states.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/function_state.hpp"
#include "node/parts.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

namespace {

constexpr Duration kReadAgain = std::chrono::seconds(1);

}  // namespace

DeclaredState* States::Find(const proto::FunctionKey& function) {
  return declared_.Find(parts_.names.FindFunction(function.name()), function.version());
}

void States::Learn(const proto::FunctionKey& key) {
  const auto* record = parts_.membership.view().functions().Find(key);
  const bool has_state = record != nullptr && !record->state().empty();
  const auto* known = Find(key);
  if (known != nullptr && has_state && known->key.text() == cluster::StateKey(*record)) return;
  const auto model = known == nullptr ? ModelNumber() : known->model;
  if (known != nullptr) Forget(declared_.Remove(known->function, known->version));
  if (has_state) Declare(*record);
  if (model) parts_.replica_images.Undeclared(model->digest.text());
}

void States::Declare(const proto::FunctionRecord& record) {
  auto& state = declared_.Add(record, parts_.names.Function(record.key().name()),
                              parts_.names.State(cluster::StateKey(record)));
  state.model = parts_.models.CopyOf(record);
  state.failed = rooms_.Reserve(state.key, state.bytes);
  while (absl::IsResourceExhausted(state.failed) && parts_.sequences.CoolOne())
    state.failed = rooms_.Reserve(state.key, state.bytes);
  parts_.scheduler.DeclareState(state.key, state.model, state.OnDevice());
  if (!state.failed.ok()) return parts_.out.Note("state-refused", std::string(state.failed.message()));
  parts_.scheduler.HoldState(state.key, true);
  parts_.sequences.Learn(state);
  // A worker that outlived an earlier daemon may have it: its model came before the news of this function.
  for (GpuIndex gpu = 0; parts_.settings.state_write_back == StateWriteBack::kEvict && gpu < met_.size();
       ++gpu) {
    const bool leaves = IsUnread(gpu, state.model);  // it is written back first
    if (!parts_.runtimes.Up(gpu) || parts_.models.Find(state.model) == nullptr ||
        (parts_.scheduler.FindResident(gpu, state.model) == nullptr && !leaves))
      continue;
    Recover(gpu, state.model, state.key);
    parts_.sequences.Recover(gpu, state.model, state);
  }
  parts_.out.Add(LoadImage{state.key.text(), state.specs, true});
}

void States::On(const ImageLoaded& event) {
  auto* state = declared_.ByKey(parts_.names.FindState(event.function));
  // A function that went meanwhile leaves nothing.
  for (const auto& id : event.sequences)
    if (state == nullptr) parts_.out.Add(ForgetImage{cluster::SequenceKey(event.function, id)});
  if (state == nullptr) return;
  const auto& read = event.image.status();
  const bool passes = !read.ok() && !absl::IsNotFound(read) && !absl::IsDataLoss(read);
  if (passes && state->loading && ImageOf(state->key) == nullptr) return ReadLater(*state, read);
  if (state->owner) return parts_.sequences.Loaded(*state, event.image);
  state->loading = false;
  const auto newer = ImageOf(state->key);  // from a living worker
  if (event.image.ok()) {
    if (newer == nullptr) Keep({*event.image});
  } else if (!absl::IsNotFound(event.image.status()) && newer == nullptr && state->recovering == 0) {
    // Zeros would pass for the state: no run begins until an operator decided that it begins anew.
    return Fail(*state, "state-damaged",
                absl::DataLossError(
                    absl::StrCat(state->name, ": its state cannot be read (", event.image.status().message(),
                                 "); remove the function and deploy it again to begin anew")));
  }
  LetRun(*state);
  parts_.sequences.Listed(state->key, event.sequences);
}

void States::ReadLater(const DeclaredState& state, const absl::Status& why) {
  if (std::ranges::find(unreadable_, state.key) != unreadable_.end()) return;
  parts_.out.Note("state-unreadable",
                  absl::StrCat(state.name, ": its state cannot be read now (", why.message(),
                               "); it is read again by itself, and its requests wait"));
  unreadable_.push_back(state.key);
  parts_.out.WakeAt(Timer::kStates, parts_.out.now() + kReadAgain);
}

void States::OnTimer() {
  for (const auto& key : std::exchange(unreadable_, {}))
    if (const auto* state = declared_.ByKey(key); state != nullptr && state->loading)
      parts_.out.Add(LoadImage{key.text(), state->specs, !state->owner});
}

void States::Fail(DeclaredState& state, const std::string& kind, absl::Status why) {
  state.failed = std::move(why);
  parts_.out.Note(kind, std::string(state.failed.message()));
  // And held for ever.
  parts_.decisions.CarryOut(parts_.scheduler.FailState(state.key, state.failed));
  parts_.sequences.Fail(state);
}

// With every run written back the file has all that was acknowledged: what a worker has beyond it was not.
void States::RecoverAll(GpuIndex gpu, const ModelNumber& copy) {
  const auto keys = parts_.scheduler.StatesOf(copy);
  if (parts_.settings.state_write_back == StateWriteBack::kEvict && keys.empty()) unread_[gpu].insert(copy);
  for (const auto& key : keys) {
    const auto* state = declared_.ByKey(key);
    if (state->owner) continue;
    if (parts_.settings.state_write_back == StateWriteBack::kEvict) Recover(gpu, copy, key);
    parts_.sequences.Recover(gpu, copy, *state);
  }
}

// Of one function: its model's other functions may not be known yet, and are asked for when they are.
void States::Recover(GpuIndex gpu, const ModelNumber& copy, const StateNumber& key) {
  ++declared_.ByKey(key)->recovering;
  parts_.scheduler.HoldState(key, true);
  BeginRead(gpu, copy);
  parts_.write_backs.Order(gpu, copy, key, RecoveryOrdered{gpu, copy, key});
}

void States::EndRead(GpuIndex gpu, const ModelNumber& model) {
  const auto read = reads_.find({gpu, model});
  if (read != reads_.end() && --read->second == 0) reads_.erase(read);
}

void States::Recovered(const RecoveryOrdered& purpose, absl::StatusOr<ImagePtr> image) {
  EndRead(purpose.gpu, purpose.model);
  auto* state = declared_.ByKey(purpose.key);
  if (state == nullptr || state->recovering == 0) return;
  --state->recovering;
  const auto label = parts_.settings.Label(purpose.gpu);
  if (absl::IsUnavailable(image.status())) {
    parts_.out.Note("state-lost",
                    absl::StrCat(state->name, ": the worker of ", label,
                                 " died before what it had could be read; runs since it was last written "
                                 "back are lost, if there were any"));
  } else if (!image.ok() && !absl::IsNotFound(image.status()) && state->failed.ok()) {
    // The worker has it yet: to go on from the older file would lose what was acknowledged. So would its model's eviction, before
    // which it is tried once more.
    unread_[purpose.gpu].insert(purpose.model);
    return Fail(*state, "state-not-saved",
                absl::FailedPreconditionError(absl::StrCat(
                    state->name, ": the state that the worker of ", label, " has could not be kept (",
                    image.status().message(),
                    "); give it room and restart this daemon, or remove the function and deploy it again "
                    "to begin anew")));
  }
  const auto known = ImageOf(purpose.key);
  if (image.ok()) {
    const bool newer = known == nullptr || known->runs() < (*image)->runs();
    newer ? Keep({*std::move(image)}) : parts_.out.Add(RestoreImage{purpose.key.text()});
  }
  LetRun(*state);
}

// Runs may begin when nothing that is known of the state can still come.
bool States::Unhold(const DeclaredState& state) {
  if (state.loading || state.recovering > 0 || !state.failed.ok() || !KnowsAllWorkers()) return false;
  parts_.scheduler.HoldState(state.key, false);
  return true;
}

void States::LetRun(const DeclaredState& state) {
  if (Unhold(state)) parts_.decisions.Decide();
}

bool States::KnowsAllWorkers() const {
  return parts_.settings.state_write_back == StateWriteBack::kRun ||
         std::ranges::all_of(met_, [](bool met) { return met; });
}

void States::Met(GpuIndex gpu) {
  if (met_[gpu]) return;
  met_[gpu] = true;
  std::vector<StateNumber> keys;
  for (const auto* state : declared_.InOrder()) keys.push_back(state->key);
  for (const auto& key : keys)
    if (const auto* state = declared_.ByKey(key)) LetRun(*state);
  parts_.sequences.AllMet();
}

void States::Forget(const StateNumber& key) {
  parts_.sequences.Forget(key);
  parts_.decisions.CarryOut(parts_.scheduler.ForgetState(key));
  images_.erase(key);
  rooms_.Free(key);
  parts_.out.Add(ForgetImage{key.text()});
}

ImagePtr States::ImageOf(const StateNumber& key) const {
  const auto it = images_.find(key);
  return it == images_.end() ? nullptr : it->second;
}

void States::Reread(DeclaredState& state) {
  state.loading = true;
  parts_.scheduler.HoldState(state.key, true);
  images_.erase(state.key);
  parts_.out.Add(LoadImage{state.key.text(), state.specs, true});
}

void States::DropImage(const StateNumber& key) {
  images_.erase(key);
  parts_.replication.Changed(key.text(), true);
  if (auto* state = declared_.ByKey(key)) state->runs = 0;
  parts_.out.Add(ForgetImage{key.text()});
}

void States::Unload(const StateNumber& key) {
  images_.erase(key);
  rooms_.Free(key);
  parts_.out.Add(UnloadImage{key.text()});
}

ImagePtr States::AddTo(const StateNumber& key, proto::SwapInOrder& order) {
  auto image = ImageOf(key);
  if (image != nullptr) {
    *order.add_states() = *image;
  } else if (const auto* state = declared_.ByKey(key)) {
    *order.add_states() = state->Zeros();
  } else {
    return image;
  }
  order.mutable_states()->rbegin()->set_meter(order.meter());
  return image;
}

void States::Keep(const std::vector<ImagePtr>& images) {
  for (const auto& image : images) {
    auto* state = declared_.ByKey(parts_.names.FindState(image->function()));
    if (state == nullptr) continue;
    state->runs = image->runs();
    images_[state->key] = image;
    parts_.out.Add(KeepImage{image});
  }
}

void States::Found(const ImagePtr& image) {
  const auto& text = image->function();
  const auto* state = declared_.ByKey(parts_.names.FindState(text.substr(0, text.find('#'))));
  if (state == nullptr) return;  // its file is read when the function is known
  if (state->key.text() != text) return parts_.sequences.Found(state->key, image);
  const auto known = ImageOf(state->key);
  if (known == nullptr || known->runs() < image->runs()) Keep({image});
}

void States::LeftWith(GpuIndex gpu, const ModelNumber& model, const std::vector<ImagePtr>& images) {
  const bool unread = unread_[gpu].erase(model) > 0;
  for (const auto& image : images) {
    const auto* state = parts_.scheduler.states().Find(parts_.names.FindState(image->function()));
    // Of what this daemon's own runs have there it has no newer image.
    const bool own = state != nullptr && state->CurrentAt(gpu);
    !unread || own ? Keep({image}) : Found(image);
  }
}

bool States::AnyAt(GpuIndex gpu, const ModelNumber& model) const {
  if (IsUnread(gpu, model) || reads_.contains({gpu, model})) return true;
  const auto& of = parts_.scheduler.StatesOf(model);
  return std::ranges::any_of(
      of, [&](const StateNumber& key) { return parts_.scheduler.states().Find(key)->CurrentAt(gpu); });
}

void States::On(const RuntimeLost& event) {
  unread_[event.gpu].clear();
  absl::erase_if(reads_, [&](const auto& read) { return read.first.first == event.gpu; });
  for (auto* state : declared_.InOrder()) Lose(*state, event.gpu);
  for (auto* state : declared_.SequencesInOrder()) Lose(*state, event.gpu);
}

void States::Lose(DeclaredState& state, GpuIndex gpu) {
  const auto* where = parts_.scheduler.states().Find(state.key);
  if (where == nullptr || !where->CurrentAt(gpu)) return;
  const auto image = ImageOf(state.key);
  const auto safe = image == nullptr ? 0 : image->runs();
  const bool ends = state.owner && image == nullptr;
  if (state.runs > safe) {
    parts_.out.Note(
        "state-lost",
        absl::StrCat(state.name, ": the worker of ", parts_.settings.Label(gpu), " died with its state; the ",
                     state.runs - safe, " runs since it was last written back are lost, ",
                     ends ? std::string("it has ended") : absl::StrCat("it goes on from run ", safe)));
  }
  state.runs = safe;
  if (ends) parts_.sequences.Lose(state);
}

void States::TellStay(const ModelNumber& copy) {
  for (const auto* state : declared_.InOrder()) {
    const auto sequences = parts_.sequences.CountOf(state->key);
    if (state->model != copy || (state->runs == 0 && ImageOf(state->key) == nullptr && sequences == 0))
      continue;
    parts_.out.Note(
        "state-stays",
        absl::StrCat(
            state->name, ": its model was taken off this node, and its state of ", state->runs, " runs ",
            sequences == 0 ? std::string("stays") : absl::StrCat("and ", sequences, " sequences stay"),
            " here, until another node takes over what is there"));
  }
}

}  // namespace troupe::node
