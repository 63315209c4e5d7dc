// The room of sequences: which are in memory, and when they end for want of use.
#include "node/state/sequences.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "cluster/function_state.hpp"
#include "node/parts.hpp"

namespace troupe::node {

namespace {

constexpr std::size_t kNamed = 10;  // in an event

}  // namespace

void Sequences::Warm(const DeclaredState& function, Sequence& sequence) {
  const auto key = parts_.names.State(cluster::SequenceKey(function.key.text(), sequence.id));
  const auto& state = parts_.states.declared().AddSequence(function, sequence.id, key);
  table_.Warm(sequence, key);
  parts_.scheduler.DeclareState(key, state.model, state.OnDevice(), true);
  parts_.scheduler.HoldState(key, true);
  waiting_.push_back(key);
  GiveRoom();
}

void Sequences::GiveRoom() {
  while (!waiting_.empty()) {
    const auto key = waiting_.front();
    const auto& state = *parts_.states.declared().ByKey(key);
    if (!parts_.states.rooms().Reserve(key, state.bytes).ok()) {
      if (!CoolOne()) return;
      continue;
    }
    waiting_.pop_front();
    auto& sequence = *table_.ByKey(key);
    sequence.has_room = true;
    ++with_room_;
    Prepare(sequence);
  }
}

void Sequences::Prepare(const Sequence& sequence) {
  if (!Known(sequence.owner)) return;
  auto& state = *parts_.states.declared().ByKey(sequence.key);
  if (state.loading && sequence.begun && parts_.states.ImageOf(sequence.key) == nullptr)
    return parts_.out.Add(LoadImage{sequence.key.text(), state.specs});
  state.loading = false;
  parts_.states.Unhold(state);
}

bool Sequences::CoolOne() {
  for (auto& sequence : table_.warm()) {
    if (sequence.requests > 0 || !sequence.has_room) continue;
    const auto& state = *parts_.scheduler.states().Find(sequence.key);
    if (state.leaving) return false;   // it goes when it has left its GPU
    if (state.held) continue;          // its image is being read
    if (!state.stay.over()) continue;  // it could not be written back a moment ago
    if (parts_.write_backs.SavesRunOf(sequence.key)) continue;
    const bool on_gpu = state.current && state.gpu != kNoGpu;
    if (on_gpu && parts_.settings.state_write_back == StateWriteBack::kEvict) {
      const auto gpu = state.gpu;
      const auto model = parts_.states.declared().ByKey(sequence.key)->model;
      parts_.scheduler.SendAway(sequence.key);
      parts_.evictions.OrderLeave(gpu, model, sequence.key);
      return false;
    }
    Cool(sequence);
    return true;
  }
  return false;
}

void Sequences::Cool(Sequence& sequence) {
  const auto key = sequence.key;
  std::erase(waiting_, key);
  TakeOffGpu(key);
  parts_.states.Unload(key);
  ForgetState(key);
  with_room_ -= sequence.has_room ? 1 : 0;
  sequence.has_room = false;
  parts_.states.declared().RemoveSequence(key);
  table_.Cool(sequence);
}

// What is on a GPU is of no use any more, or is the same as its image.
void Sequences::TakeOffGpu(const StateNumber& key) {
  const auto* state = parts_.scheduler.states().Find(key);
  if (state == nullptr || state->gpu == kNoGpu || state->leaving) return;
  const auto gpu = state->gpu;
  const auto model = parts_.states.declared().ByKey(key)->model;
  parts_.scheduler.SendAway(key);
  parts_.evictions.Drop(gpu, model, key);
}

void Sequences::DropState(Sequence& sequence) {
  if (sequence.begun || parts_.states.ImageOf(sequence.key) != nullptr) parts_.states.DropImage(sequence.key);
  sequence.begun = false;
  TakeOffGpu(sequence.key);
}

void Sequences::Remove(Sequence& sequence) {
  const auto key = sequence.key;
  const auto text = cluster::SequenceKey(sequence.owner.text(), sequence.id);
  if (key) DropState(sequence);
  with_room_ -= sequence.has_room ? 1 : 0;
  table_.Remove(sequence);
  if (!key) {
    parts_.replication.Changed(text, true);
    return parts_.out.Add(ForgetImage{text});
  }
  std::erase(waiting_, key);
  parts_.states.rooms().Free(key);
  ForgetState(key);
  parts_.states.declared().RemoveSequence(key);
}

// What is decided next comes behind all that ends now.
void Sequences::ForgetState(const StateNumber& key) {
  for (const auto& finished : parts_.scheduler.ForgetState(key).finished) parts_.requests.Finish(finished);
}

void Sequences::EndIdle(std::list<Sequence>& list, std::vector<std::pair<StateNumber, std::string>>& ended) {
  const Duration idle = parts_.settings.sequences.idle;
  for (auto at = list.begin(); at != list.end() && parts_.out.now() - at->used >= idle;) {
    auto& sequence = *at++;
    const auto* state = sequence.key ? parts_.scheduler.states().Find(sequence.key) : nullptr;
    if (sequence.requests > 0 || (state != nullptr && state->leaving)) continue;
    // Its home says when it ends.
    if (parts_.replica_images.IsCopy(sequence.owner)) continue;
    endings_.Add(cluster::SequenceKey(sequence.owner.text(), sequence.id),
                 absl::StrCat("it was unused for ", FormatDuration(idle), " (option sequence-idle)"));
    ended.emplace_back(sequence.owner, sequence.id);
    Remove(sequence);
  }
}

void Sequences::OnTimer() {
  armed_ = false;
  std::vector<std::pair<StateNumber, std::string>> ended;
  EndIdle(table_.warm(), ended);
  EndIdle(table_.cold(), ended);
  std::map<std::string, std::vector<std::string>> by_function;
  for (const auto& [function, id] : ended)
    by_function[parts_.states.declared().ByKey(function)->name].push_back(id);
  for (const auto& [name, ids] : by_function) {
    std::string text = absl::StrCat(ids.size(), " sequences of ", name, " have ended, unused for ",
                                    FormatDuration(parts_.settings.sequences.idle), ":");
    for (std::size_t i = 0; i < std::min(ids.size(), kNamed); ++i) absl::StrAppend(&text, " ", ids[i]);
    parts_.out.Note("sequences-ended", text + (ids.size() > kNamed ? " ..." : ""));
  }
  GiveRoom();
  parts_.decisions.Decide();
  Arm();
}

// A sequence that is in use is looked at again later.
void Sequences::Arm() {
  if (armed_ || table_.size() == 0) return;
  armed_ = true;
  const Duration idle = parts_.settings.sequences.idle;
  Time oldest = Time::max();
  if (!table_.warm().empty()) oldest = table_.warm().front().used;
  if (!table_.cold().empty()) oldest = std::min(oldest, table_.cold().front().used);
  const Duration soonest = std::min<Duration>(idle, std::chrono::seconds(1));
  parts_.out.WakeAt(Timer::kSequences, std::max(oldest + idle, parts_.out.now() + soonest));
}

void Sequences::Describe(proto::NodeDescription& node) const {
  absl::flat_hash_map<StateNumber, proto::FunctionSequences*> shown_of;
  for (const auto* state : std::as_const(parts_.states).declared().InOrder()) {
    const auto count = table_.CountOf(state->key);
    if (count == 0) continue;
    auto& shown = *node.add_sequences();
    shown.mutable_function()->set_name(state->function.text());
    shown.mutable_function()->set_version(state->version);
    shown.set_count(count);
    shown_of[state->key] = &shown;
  }
  for (const auto& sequence : table_.warm()) {
    const auto found = shown_of.find(sequence.owner);
    if (found == shown_of.end()) continue;
    const auto* where = parts_.scheduler.states().Find(sequence.key);
    auto& shown = *found->second;
    shown.set_in_memory(shown.in_memory() + (sequence.has_room ? 1 : 0));
    shown.set_on_gpus(shown.on_gpus() + (where != nullptr && where->current ? 1 : 0));
  }
}

}  // namespace troupe::node
