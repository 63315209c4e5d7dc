#include "node/state/replica_images.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/failure.hpp"
#include "node/parts.hpp"
#include "node/state/image_names.hpp"
#include "proto/sequence_id.hpp"

namespace troupe::node {

void ReplicaImages::Reply(Ask ask, const absl::Status& status) {
  parts_.out.Add(Answer<proto::CopiedImage>{ask, cluster::Failure<proto::CopiedImage>(status)});
}

// Null: it is not known here.
DeclaredState* ReplicaImages::FunctionOf(const std::string& image) {
  auto* state = parts_.states.declared().ByKey(parts_.names.FindState(SplitImage(image).first));
  return state == nullptr || state->owner ? nullptr : state;
}

bool ReplicaImages::Follows(const std::string& digest, std::uint64_t term) const {
  const auto followed = followed_.find(digest);
  return followed != followed_.end() && followed->second.term >= term;
}

bool ReplicaImages::Copying(const std::string& digest) const {
  const auto followed = followed_.find(digest);
  return followed != followed_.end() && !followed->second.under_way.empty();
}

bool ReplicaImages::HasCopyOf(const std::string& image) {
  const auto* state = FunctionOf(image);
  const auto followed = state == nullptr ? followed_.end() : followed_.find(state->model->digest.text());
  return followed != followed_.end() && followed->second.copied;
}

bool ReplicaImages::IsCopy(const StateNumber& function) const {
  const auto* state = parts_.states.declared().ByKey(function);
  return state != nullptr && parts_.replication.IsReplicated(state->model->digest.text()) &&
         !parts_.states.IsHome(state->model->digest.text());
}

absl::Status ReplicaImages::Check(const proto::CopyImage& wish) {
  const auto& digest = wish.model_digest();
  if (!parts_.membership.HadEpoch(wish.epoch()))
    return absl::FailedPreconditionError(
        absl::StrCat("node '", parts_.settings.name, "' was started again since: it has epoch ",
                     parts_.membership.epoch(), ", and the copy is for epoch ", wish.epoch()));
  const auto known = followed_.find(digest);
  if (known != followed_.end() && (known->second.taken || wish.term() < known->second.term))
    return absl::FailedPreconditionError(
        absl::StrCat("the home of term ", wish.term(), " offers a copy, and the states have gone on since"));
  if (parts_.states.IsHome(digest))
    return absl::FailedPreconditionError(
        absl::StrCat("node '", parts_.settings.name, "' is the home of these states itself"));
  if (known != followed_.end() && known->second.adopting)
    return absl::FailedPreconditionError("this node becomes the home of these states");
  if (parts_.handovers.Taking(digest))
    return absl::UnavailableError("the states are being taken over here: ask again later");
  const auto keepers = parts_.handovers.KeepersOf(digest);
  if (keepers.empty())
    return absl::UnavailableError("this node has not heard of a state of this model yet: ask again later");
  for (const auto* state : keepers)
    if (!state->failed.ok() || !parts_.handovers.IsKnown(*state))
      return state->failed.ok()
                 ? absl::UnavailableError(absl::StrCat(
                       state->name, ": what this node's disk has of it is not known yet: ask again later"))
                 : state->failed;
  return CheckImage(wish);
}

// Two copies of one image would come in any order.
absl::Status ReplicaImages::CheckImage(const proto::CopyImage& wish) {
  const auto known = followed_.find(wish.model_digest());
  const bool busy =
      known != followed_.end() && std::ranges::any_of(known->second.under_way, [&](const auto& copy) {
        return wish.image().empty() || copy.second == wish.image();
      });
  if (busy) return absl::UnavailableError("an earlier copy is on its way here: ask again later");
  if (wish.image().empty()) return absl::OkStatus();
  if (FunctionOf(wish.image()) == nullptr)
    return absl::UnavailableError(
        absl::StrCat("this node has not heard of the state '", wish.image(), "' yet: ask again later"));
  const auto sequence = SplitImage(wish.image()).second;
  if (!sequence.empty() && !proto::IsSequenceId(sequence))
    return absl::InvalidArgumentError(absl::StrCat("'", wish.image().substr(0, 200),
                                                   "' names no sequence: an id has letters, digits, '-', "
                                                   "'_' and '.'"));
  return absl::OkStatus();
}

void ReplicaImages::On(const CopyOffered& event) {
  const auto& wish = event.wish;
  if (const auto status = Check(wish); !status.ok()) return Reply(event.ask, status);
  auto& followed = followed_[wish.model_digest()];
  // This node may have been the home until now.
  if (followed.term < wish.term())
    parts_.replication.Leave(wish.model_digest(), absl::UnavailableError("the states are on another node"));
  followed.term = wish.term();
  followed.copied = true;
  if (wish.image().empty() || wish.ended()) {
    Drop(wish);
    return Reply(event.ask, absl::OkStatus());
  }
  const auto* state = FunctionOf(wish.image());
  followed.under_way[event.ask] = wish.image();
  parts_.out.Add(PullImages{wish.model_digest(),
                            wish.from_address(),
                            {{wish.image(), state->specs, state->bytes + kAroundTensors}},
                            event.ask});
}

void ReplicaImages::Drop(const proto::CopyImage& wish) {
  if (wish.image().empty()) {
    for (auto* state : parts_.handovers.KeepersOf(wish.model_digest())) parts_.handovers.Empty(*state);
    return;
  }
  const auto* state = FunctionOf(wish.image());
  const auto sequence = SplitImage(wish.image()).second;
  sequence.empty() ? parts_.states.DropImage(state->key) : parts_.sequences.Copied(*state, sequence, true);
}

void ReplicaImages::On(const ImagesPulled& event) {
  const auto found = followed_.find(event.digest);
  const auto image = found == followed_.end() ? std::map<Ask, std::string>::node_type()
                                              : found->second.under_way.extract(event.copy);
  if (image.empty()) return Reply(event.copy, absl::UnavailableError("its function was removed"));
  auto& followed = found->second;
  const auto* state = FunctionOf(image.mapped());
  if (state == nullptr) {
    parts_.out.Add(ForgetImage{image.mapped()});
  } else if (const auto sequence = SplitImage(image.mapped()).second;
             event.status.ok() && !sequence.empty()) {
    parts_.sequences.Copied(*state, sequence, false);
  }
  Reply(event.copy, followed.adopting
                        ? absl::FailedPreconditionError("this node became the home of these states meanwhile")
                        : event.status);
  if (followed.adopting && followed.under_way.empty()) Reread(event.digest, followed);
}

void ReplicaImages::Adopting(const std::string& digest, std::uint64_t term) {
  if (parts_.states.IsHome(digest)) return;
  const auto found = term == 0 ? followed_.find(digest) : followed_.try_emplace(digest).first;
  if (found == followed_.end()) return;
  auto& followed = found->second;
  followed.taken = false;
  followed.term = std::max(followed.term, term);
  if (followed.under_way.empty()) {
    if (followed.copied) Reread(digest, followed);
    return;
  }
  followed.adopting = true;
  for (auto* state : parts_.handovers.KeepersOf(digest)) {
    state->loading = true;
    parts_.scheduler.HoldState(state->key, true);
  }
}

void ReplicaImages::TakingOver(const std::string& digest, bool taken) {
  followed_[digest].taken = taken;
}

void ReplicaImages::Joined() {
  for (auto& [digest, followed] : followed_) followed.taken = false;
}

void ReplicaImages::Reread(const std::string& digest, Followed& followed) {
  followed.adopting = false;
  followed.copied = false;
  for (auto* state : parts_.handovers.KeepersOf(digest)) parts_.states.Reread(*state);
}

void ReplicaImages::Undeclared(const std::string& digest) {
  if (!parts_.handovers.KeepersOf(digest).empty()) return;
  // When a function with this model keeps a state again, another node may be its home.
  parts_.states.LeaveHome(digest);
  parts_.replication.Leave(digest, absl::UnavailableError("its function was removed"));
  const auto found = followed_.find(digest);
  if (found == followed_.end()) return;
  for (const auto& [ask, image] : found->second.under_way) parts_.out.Add(ForgetImage{image});
  followed_.erase(found);
}

}  // namespace troupe::node
