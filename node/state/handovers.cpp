#include "node/state/handovers.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"
#include "cluster/failure.hpp"
#include "node/parts.hpp"
#include "node/state/image_names.hpp"
#include "proto/sequence_id.hpp"

namespace troupe::node {

std::vector<DeclaredState*> Handovers::KeepersOf(const std::string& digest) {
  std::vector<DeclaredState*> keepers;
  for (auto* state : parts_.states.declared().InOrder())
    if (state->model->digest.text() == digest) keepers.push_back(state);
  return keepers;
}

// --- giving up ---

void Handovers::On(const StatesWanted& event) {
  const auto& digest = event.wish.model_digest();
  // It may be the home by copies that it has not read, since a node that drains adopts nothing.
  parts_.replica_images.Adopting(digest, 0);
  auto& given = given_[digest];
  given.asks.push_back(event.ask);
  given.functions = {event.wish.functions().begin(), event.wish.functions().end()};
  given.at_rest = false;
  parts_.models.On(ModelDisowned{digest});
}

void Handovers::Adopting(const std::string& digest) {
  elsewhere_.erase(digest);
  auto given = given_.extract(digest);
  if (!given.empty())
    AnswerGiven(given.mapped(), cluster::Failure<proto::GivenUpStates>(absl::CancelledError(
                                    "the model was to be adopted again while its states were given up")));
}

void Handovers::AnswerGiven(Given& given, const proto::GivenUpStates& reply) {
  for (const Ask ask : std::exchange(given.asks, {}))
    parts_.out.Add(Answer<proto::GivenUpStates>{ask, reply});
}

bool Handovers::Busy(const Given& given) {
  for (const auto& [key, where] : parts_.scheduler.states().all()) {
    const auto* state = parts_.states.declared().ByKey(key);
    if (state == nullptr) continue;
    const auto& owner = state->owner ? state->owner : state->key;
    if (std::ranges::find(given.functions, owner.text()) == given.functions.end()) continue;
    if (!where.line.empty() || where.running || where.leaving || where.current) return true;
  }
  return false;
}

absl::StatusOr<bool> Handovers::AtRest(const std::string& digest, const Given& given) {
  for (const auto& function : given.functions) {
    const auto* state = parts_.states.declared().ByKey(parts_.names.FindState(function));
    if (state == nullptr) return false;  // this node will hear of it
    if (!state->failed.ok()) return state->failed;
    if (!IsKnown(*state)) return false;
  }
  if (parts_.settings.state_write_back == StateWriteBack::kEvict && parts_.orphans.Any()) return false;
  return !Busy(given) && !parts_.replication.Copying(digest);
}

proto::GivenUpStates Handovers::ImagesOf(const std::string& digest, const Given& given) {
  proto::GivenUpStates reply;
  for (auto& node : parts_.replication.Complete(digest)) reply.add_copied(std::move(node));
  for (const auto& function : given.functions) {
    const auto key = parts_.names.FindState(function);
    if (parts_.states.ImageOf(key) != nullptr) reply.add_images(function);
    for (auto& image : parts_.sequences.Begun(key)) reply.add_images(std::move(image));
  }
  return reply;
}

void Handovers::On(const ImageAsked& event) {
  const auto function = SplitImage(event.wish.image()).first;
  const bool given_up = std::ranges::any_of(given_, [&](const auto& entry) {
    return entry.second.at_rest &&
           std::ranges::find(entry.second.functions, function) != entry.second.functions.end();
  });
  if (given_up || parts_.replication.Serves(function))
    return parts_.out.Add(ReadImage{event.ask, event.wish});
  parts_.out.Add(Answer<proto::FetchReply>{
      event.ask,
      cluster::Failure<proto::FetchReply>(absl::FailedPreconditionError(absl::StrCat(
          "the state '", event.wish.image(), "' was not given up by node '", parts_.settings.name,
          "', or is its own again: only what was given up, or is copied to other nodes by its home, is read by others")))});
}

// --- elsewhere ---

bool Handovers::IsKnown(const DeclaredState& state) const {
  return !state.failed.ok() || (!state.loading && state.recovering == 0 && parts_.sequences.Known(state.key));
}

// Its images and sequences go, in memory and on disk.
void Handovers::Empty(DeclaredState& state) {
  parts_.sequences.Clear(state);
  parts_.states.DropImage(state.key);
}

void Handovers::On(const StatesElsewhere& event) {
  // It keeps copies for the new home by now.
  if (parts_.replica_images.Follows(event.digest, event.term)) return;
  elsewhere_.insert(event.digest);  // Look does it
}

bool Handovers::Forget(const std::string& digest) {
  const auto keepers = KeepersOf(digest);
  // What is being read would come back.
  if (!std::ranges::all_of(keepers, [this](const auto* state) { return IsKnown(*state); })) return false;
  // What was said is about an earlier move.
  if (parts_.states.IsHome(digest) || taken_.contains(digest)) return true;
  parts_.replication.Leave(digest, absl::UnavailableError("the states are on another node"));
  if (auto given = given_.extract(digest); !given.empty())
    AnswerGiven(given.mapped(), cluster::Failure<proto::GivenUpStates>(
                                    absl::CancelledError("the states are on another node already")));
  for (auto* state : keepers) Empty(*state);
  // A move that came to nothing had brought them here: their home offers copies again.
  parts_.replica_images.TakingOver(digest, false);
  return true;
}

// --- taking over ---

absl::Status Handovers::MayTake(const proto::TakeOverStates& wish) {
  const auto& digest = wish.model_digest();
  if (taken_.contains(digest))
    return absl::UnavailableError("they are being taken over already: ask again later");
  // It would come behind what is taken over.
  if (parts_.replica_images.Copying(digest))
    return absl::UnavailableError("a copy of a state is on its way here: ask again later");
  if (parts_.states.IsHome(digest))
    return absl::FailedPreconditionError("this node is the home of these states itself");
  for (const auto* state : KeepersOf(digest)) {
    if (!state->failed.ok()) return state->failed;
    if (!IsKnown(*state))
      return absl::UnavailableError(
          absl::StrCat(state->name, ": what this node's disk has of it is not known yet: ask again later"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PullImages> Handovers::PullOf(const proto::TakeOverStates& wish) {
  PullImages pull{wish.model_digest(), wish.from_address(), {}};
  std::map<DeclaredState*, std::size_t> sequences;
  for (const auto& image : wish.images()) {
    const auto [function, sequence] = SplitImage(image);
    auto* state = parts_.states.declared().ByKey(parts_.names.FindState(function));
    if (state == nullptr || state->owner)
      return absl::UnavailableError(
          absl::StrCat("this node has not heard of the state '", function, "' yet: ask again later"));
    if (!sequence.empty() && !proto::IsSequenceId(sequence))
      return absl::InvalidArgumentError(absl::StrCat(
          "'", image.substr(0, 200), "' names no sequence: an id has letters, digits, '-', '_' and '.'"));
    sequences[state] += sequence.empty() ? 0 : 1;
    pull.images.push_back({image, state->specs, state->bytes + kAroundTensors});
  }
  for (const auto& [state, count] : sequences)
    if (const auto status = parts_.sequences.MayAdd(*state, count); !status.ok()) return status;
  return pull;
}

void Handovers::On(const StatesOffered& event) {
  const auto& wish = event.wish;
  auto status = MayTake(wish);
  auto pull = status.ok() ? PullOf(wish) : absl::StatusOr<PullImages>(status);
  if (!pull.ok())
    return parts_.out.Add(
        Answer<proto::TakenOverStates>{event.ask, cluster::Failure<proto::TakenOverStates>(pull.status())});
  if (auto given = given_.extract(wish.model_digest()); !given.empty())
    AnswerGiven(given.mapped(), cluster::Failure<proto::GivenUpStates>(
                                    absl::CancelledError("the states are taken over here again")));
  for (auto* state : KeepersOf(wish.model_digest())) {
    parts_.scheduler.HoldState(state->key, true);
    state->loading = true;
    Empty(*state);
  }
  elsewhere_.erase(wish.model_digest());
  parts_.replication.Leave(wish.model_digest(),
                           absl::UnavailableError("the states are taken over here again"));
  parts_.replica_images.TakingOver(wish.model_digest(), true);
  taken_[wish.model_digest()] = {event.ask, {wish.images().begin(), wish.images().end()}};
  parts_.out.Add(*std::move(pull));
}

void Handovers::On(const ImagesPulled& event) {
  const auto found = taken_.find(event.digest);
  if (found == taken_.end()) return;
  auto& taken = found->second;
  taken.pulled = true;
  if (event.status.ok()) {
    for (const auto& image : taken.images)
      if (parts_.states.declared().ByKey(parts_.names.FindState(SplitImage(image).first)) == nullptr)
        parts_.out.Add(ForgetImage{image});
    // They are read as after a start: what is answered is what a restart will find.
    for (const auto* state : KeepersOf(event.digest))
      parts_.out.Add(LoadImage{state->key.text(), state->specs, true});
    return;
  }
  for (const auto& image : taken.images) parts_.out.Add(ForgetImage{image});
  for (auto* state : KeepersOf(event.digest)) {
    state->loading = false;
    parts_.states.Unhold(*state);
  }
  EndTaken(event.digest, event.status);
}

void Handovers::EndTaken(const std::string& digest, const absl::Status& status) {
  const auto taken = std::move(taken_.extract(digest).mapped());
  if (!status.ok()) parts_.replica_images.TakingOver(digest, false);
  proto::TakenOverStates reply;
  SetStatus(status, reply);
  parts_.out.Add(Answer<proto::TakenOverStates>{taken.ask, std::move(reply)});
}

void Handovers::LookAtTaken(const std::string& digest) {
  absl::Status status;
  for (const auto* state : KeepersOf(digest)) {
    status.Update(state->failed);
    if (state->failed.ok() && state->loading) return;
  }
  EndTaken(digest, status);
}

void Handovers::Look() {
  std::erase_if(elsewhere_, [this](const std::string& digest) { return Forget(digest); });
  for (auto it = given_.begin(); it != given_.end();) {
    const auto entry = it++;
    auto& given = entry->second;
    if (given.at_rest) continue;
    const auto at_rest = AtRest(entry->first, given);
    if (at_rest.ok() && !*at_rest) continue;
    given.at_rest = at_rest.ok();
    AnswerGiven(given, at_rest.ok() ? ImagesOf(entry->first, given)
                                    : cluster::Failure<proto::GivenUpStates>(at_rest.status()));
    if (!at_rest.ok()) given_.erase(entry);
  }
  std::vector<std::string> pulled;
  for (const auto& [digest, taken] : taken_)
    if (taken.pulled) pulled.push_back(digest);
  for (const auto& digest : pulled) LookAtTaken(digest);
}

}  // namespace troupe::node
