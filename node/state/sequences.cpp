#include "node/state/sequences.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/function_state.hpp"
#include "node/parts.hpp"
#include "node/runtimes/worker_orders.hpp"
#include "proto/sequence_id.hpp"

namespace troupe::node {

namespace {

std::string Limit(std::uint64_t most, const char* of) {
  return absl::StrCat(most, " sequences, the most of ", of, "; end some with sequence_end, or raise it");
}

}  // namespace

// --- functions ---

void Sequences::Forget(const StateNumber& function) {
  owners_.erase(function);
  for (Sequence* sequence : table_.Of(function)) Remove(*sequence);
}

void Sequences::Found(const StateNumber& function, const ImagePtr& image) {
  const auto id = image->function().substr(cluster::SequencePrefix(function.text()).size());
  const auto& sequence = Enter(function, id);
  const auto known = sequence.key ? parts_.states.ImageOf(sequence.key) : nullptr;
  if (known != nullptr && known->runs() < image->runs()) parts_.states.Keep({image});
}

void Sequences::Clear(const DeclaredState& function) {
  for (Sequence* sequence : table_.Of(function.key)) Remove(*sequence);
}

void Sequences::Copied(const DeclaredState& function, const std::string& id, bool ended) {
  if (!ended) {
    auto& sequence = Enter(function.key, id);
    // This node may have been the home: what it has in memory is older than the file now.
    if (sequence.key && sequence.requests == 0) Cool(sequence);
    table_.Use(sequence, parts_.out.now());
    return Arm();
  }
  auto* sequence = table_.Find(function.key, id);
  if (sequence != nullptr) return Remove(*sequence);
  parts_.out.Add(ForgetImage{cluster::SequenceKey(function.key.text(), id)});
}

std::vector<std::string> Sequences::Begun(const StateNumber& function) {
  std::vector<std::string> keys;
  for (const Sequence* sequence : table_.Of(function))
    if (sequence->begun) keys.push_back(cluster::SequenceKey(function.text(), sequence->id));
  std::ranges::sort(keys);
  return keys;
}

Sequence& Sequences::Enter(const StateNumber& function, const std::string& id) {
  auto* sequence = table_.Find(function, id);
  if (sequence == nullptr) sequence = &table_.Add(function, id, parts_.out.now());
  sequence->begun = true;
  return *sequence;
}

void Sequences::Listed(const StateNumber& function, const std::vector<std::string>& ids) {
  const auto owner = owners_.find(function);
  if (owner == owners_.end()) return;
  owner->second.listed = true;
  for (const auto& id : ids) Enter(function, id);
  // With every run written back nothing is missing in the files.
  const auto* state = parts_.states.declared().ByKey(function);
  const bool has_model = parts_.models.Find(state->model) != nullptr;
  for (GpuIndex gpu = 0; has_model && !ids.empty() && gpu < parts_.runtimes.size(); ++gpu)
    if (parts_.settings.state_write_back == StateWriteBack::kRun && parts_.runtimes.Up(gpu) &&
        parts_.scheduler.FindResident(gpu, state->model) != nullptr)
      DropAtWorker(gpu, state->model, function);
  Release(function);
  Arm();
}

void Sequences::Loaded(DeclaredState& state, const absl::StatusOr<ImagePtr>& image) {
  auto* sequence = table_.ByKey(state.key);
  if (sequence == nullptr || !std::exchange(state.loading, false)) return;
  if (image.ok()) {
    if (parts_.states.ImageOf(state.key) == nullptr) parts_.states.Keep({*image});
  } else if (parts_.states.ImageOf(state.key) == nullptr) {
    const auto why = absl::StrCat("its state cannot be read (", image.status().message(), ")");
    parts_.out.Note("state-damaged", absl::StrCat(state.name, " has ended: ", why));
    endings_.Add(state.key.text(), why);
    sequence->begun = false;
  }
  const auto key = state.key;
  parts_.states.Unhold(state);
  if (!sequence->begun && sequence->requests == 0) {
    Remove(*sequence);
  } else {
    Look(key);
  }
  GiveRoom();  // no request may use it by now, so that its room is for those that wait
  parts_.decisions.Decide();
}

// --- workers ---

void Sequences::DropAtWorker(GpuIndex gpu, const ModelNumber& model, const StateNumber& function) {
  parts_.orders.GiveFor(
      model, gpu,
      DropOrderFor(parts_.models.PackedDigest(model), cluster::SequencePrefix(function.text()), true),
      NoPurpose{});
}

void Sequences::Recover(GpuIndex gpu, const ModelNumber& copy, const DeclaredState& function) {
  if (parts_.settings.state_write_back == StateWriteBack::kRun) {
    if (table_.CountOf(function.key) > 0) DropAtWorker(gpu, copy, function.key);
    return;
  }
  ++owners_[function.key].recovering;
  parts_.states.BeginRead(gpu, copy);
  for (const auto& sequence : table_.warm())
    if (sequence.owner == function.key) parts_.scheduler.HoldState(sequence.key, true);
  auto order =
      WriteBackOrderFor(parts_.models.PackedDigest(copy), cluster::SequencePrefix(function.key.text()));
  order.mutable_write_back()->set_prefix(true);
  parts_.orders.GiveFor(
      copy, gpu, std::move(order),
      WriteBackPurpose(SequencesRecovered{gpu, copy, function.key, parts_.runtimes.Life(gpu)}));
}

void Sequences::Recovered(const SequencesRecovered& purpose, const absl::Status& status,
                          const std::vector<ImagePtr>& images) {
  parts_.states.EndRead(purpose.gpu, purpose.model);
  const auto prefix = cluster::SequencePrefix(purpose.function.text());
  const auto owner = owners_.find(purpose.function);
  if (owner == owners_.end()) {  // it went meanwhile
    for (const auto& image : images) parts_.out.Add(ForgetImage{image->function()});
    return;
  }
  --owner->second.recovering;
  auto* state = parts_.states.declared().ByKey(purpose.function);
  const auto label = parts_.settings.Label(purpose.gpu);
  for (const auto& image : images) {
    const auto& sequence = Enter(purpose.function, image->function().substr(prefix.size()));
    if (sequence.has_room) parts_.states.Keep({image});
  }
  if (absl::IsUnavailable(status)) {
    parts_.out.Note("state-lost",
                    absl::StrCat("sequences of ", state->name, ": the worker of ", label,
                                 " died before what it had could be read; runs since they were last written "
                                 "back are lost, if there were any"));
  } else if (!status.ok()) {
    return parts_.states.Fail(
        *state, "state-not-saved",
        absl::FailedPreconditionError(absl::StrCat(
            state->name, ": the sequences that the worker of ", label, " has could not be kept (",
            status.message(),
            "); give them room and restart this daemon, or remove the function and deploy it again to begin "
            "anew")));
  } else if (parts_.runtimes.Lives(purpose.gpu, purpose.life)) {
    DropAtWorker(purpose.gpu, purpose.model, purpose.function);
  }
  Release(purpose.function);
  Arm();
}

void Sequences::AllMet() {
  std::vector<StateNumber> functions;
  for (const auto& [function, owner] : owners_) functions.push_back(function);
  std::ranges::sort(functions, {},
                    [](const StateNumber& function) -> const std::string& { return function.text(); });
  for (const auto& function : functions) Release(function);
}

void Sequences::Fail(const DeclaredState& function) {
  std::vector<StateNumber> keys;
  for (const auto& sequence : table_.warm())
    if (sequence.owner == function.key) keys.push_back(sequence.key);
  for (const auto& key : keys) parts_.decisions.CarryOut(parts_.scheduler.FailState(key, function.failed));
}

void Sequences::Lose(const DeclaredState& state) {
  auto* sequence = table_.ByKey(state.key);
  if (sequence == nullptr || !std::exchange(sequence->begun, false)) return;
  endings_.Add(state.key.text(), "its state was on a GPU whose worker died, and nowhere else");
  parts_.scheduler.HoldState(state.key, true);
  lost_.push_back(state.key);
}

void Sequences::On(const RuntimeLost&) {
  if (lost_.empty()) return;
  for (const auto& key : std::exchange(lost_, {})) {
    auto* sequence = table_.ByKey(key);
    if (sequence == nullptr) continue;
    parts_.states.Unhold(*parts_.states.declared().ByKey(key));
    sequence->requests == 0 ? Remove(*sequence) : Look(key);
  }
  parts_.decisions.Decide();
}

bool Sequences::Known(const StateNumber& function) const {
  const auto owner = owners_.find(function);
  return owner != owners_.end() && owner->second.listed && owner->second.recovering == 0 &&
         parts_.states.KnowsAllWorkers();
}

// Its sequences are known, perhaps: the requests that came before may go on, or are refused.
void Sequences::Release(const StateNumber& function) {
  if (!Known(function)) return;
  bool any = false;
  for (const Sequence* sequence : table_.Of(function)) {
    if (!sequence->key || !sequence->has_room) continue;
    any = true;
    const auto key = sequence->key;
    Prepare(*sequence);
    Look(key);
  }
  if (any) parts_.decisions.Decide();
}

// --- requests ---

absl::Status Sequences::Unknown(const StateNumber& function, const std::string& id) const {
  const auto* why = endings_.Find(cluster::SequenceKey(function.text(), id));
  const auto* state = parts_.states.declared().ByKey(function);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no sequence '", id, "' of ", state->name, ": ",
                   why == nullptr ? std::string("it was not started here, or has ended") : *why,
                   "; start it anew with sequence_start (header: 'Troupe-Sequence: ", id, "; start')"));
}

absl::Status Sequences::MayAdd(const DeclaredState& function, std::size_t more) const {
  const auto& limits = parts_.settings.sequences;
  if (table_.CountOf(function.key) + more > limits.of_function)
    return absl::ResourceExhaustedError(absl::StrCat(
        function.name, " has ", Limit(limits.of_function, "one function (option function-sequences)")));
  if (table_.size() + more > limits.most)
    return absl::ResourceExhaustedError(
        absl::StrCat("this node has ", Limit(limits.most, "one node (option sequences)")));
  return absl::OkStatus();
}

absl::StatusOr<StateNumber> Sequences::Open(const DeclaredState* function,
                                            const proto::SubmitRequest& message) {
  const auto& wish = message.sequence();
  if (function == nullptr || !proto::IsSequenceId(wish.id())) {
    return absl::InvalidArgumentError(
        absl::StrCat("function '", message.function().name(), "' was asked for the sequence '",
                     wish.id().substr(0, 80), "'; ",
                     function == nullptr ? "it keeps no state: leave the sequence out"
                                         : "an id has letters, digits, '-', '_' and '.'"));
  }
  auto* sequence = table_.Find(function->key, wish.id());
  if (sequence == nullptr) {
    if (!wish.start() && Known(function->key)) return Unknown(function->key, wish.id());
    if (const auto status = MayAdd(*function, 1); !status.ok())
      return absl::ResourceExhaustedError(
          absl::StrCat("sequence '", wish.id(), "' cannot begin: ", status.message()));
    sequence = &table_.Add(function->key, wish.id(), parts_.out.now());
  }
  // No other sequence will make room.
  if (!sequence->key && with_room_ == 0 && !parts_.states.rooms().Has(function->bytes)) {
    if (!sequence->begun) Remove(*sequence);
    return absl::ResourceExhaustedError(absl::StrCat(
        "the state of a sequence of ", function->name, " has ", FormatBytes(function->bytes),
        ", and the states of functions leave less of this node's memory for states (option state-memory)"));
  }
  if (wish.start()) endings_.Forget(cluster::SequenceKey(function->key.text(), wish.id()));
  ++sequence->requests;
  table_.Use(*sequence, parts_.out.now());
  if (!sequence->key) Warm(*function, *sequence);
  Arm();
  return sequence->key;
}

void Sequences::Look(const StateNumber& key) {
  const auto* sequence = table_.ByKey(key);
  if (sequence == nullptr || sequence->begun || !Known(sequence->owner)) return;
  const auto* state = parts_.scheduler.states().Find(key);
  if (state->line.empty() || state->running || parts_.states.declared().ByKey(key)->loading) return;
  if (parts_.requests.Find(state->line.front())->message.sequence().start()) return;
  // Its end looks at the next one.
  parts_.requests.Finish(parts_.scheduler.FailFirst(key, Unknown(sequence->owner, sequence->id)));
}

void Sequences::Begin(const StateNumber& key) {
  auto* sequence = table_.ByKey(key);
  if (sequence != nullptr && std::exchange(sequence->begun, false)) parts_.states.DropImage(key);
}

void Sequences::Ended(const StateNumber& key, const proto::Sequence& wish, const Finished& finished) {
  auto* sequence = table_.ByKey(key);
  if (sequence == nullptr) return;  // its function has gone
  --sequence->requests;
  table_.Use(*sequence, parts_.out.now());
  if (finished.kind == FinishKind::kServed) {
    sequence->begun = true;
    if (wish.end()) DropState(*sequence);
  }
  if (!sequence->begun && sequence->requests == 0) {
    Remove(*sequence);
  } else {
    Look(key);
  }
  GiveRoom();
}

}  // namespace troupe::node
