#include "actors/node/model_pulls.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "actors/node/relayed_ranges.hpp"
#include "base/wire_status.hpp"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

namespace {

using Failure = node::ObjectPull::Failure;

Failure FailureOf(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return Failure::kBusy;
  if (absl::IsAborted(status)) return Failure::kLater;
  return absl::IsDataLoss(status) ? Failure::kWrong : Failure::kGone;
}

// What the source says must be what was asked for: the size of what is loaded is taken from it.
absl::Status CheckReply(const proto::FetchReply& reply, std::uint64_t total, std::uint64_t length) {
  const auto size = transport::SizeOf(reply.data()).count();
  if (reply.total() == total && size == length) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("it offers ", size, " bytes of an object of ", reply.total(),
                                          ", and ", length, " bytes of an object of ", total,
                                          " were asked for"));
}

}  // namespace

void ModelPulls::Pull(Self* self, const std::string& model, const std::string& object,
                      const proto::ModelPlaces& places, Done done) {
  const auto id = next_pull_++;
  auto& pull = pulls_[id];
  // Another model with the same weights may be pulled at the same time.
  pull.upload = absl::StrCat("fetch-", model, "-", object, "-", id);
  pull.object = object;
  pull.done = std::move(done);
  pull.relays = std::min<std::size_t>(places.relays(), static_cast<std::size_t>(places.places_size()));
  if (watcher_ == nullptr) watcher_ = caf::actor_cast<PeerWatcherActor>(self);
  for (const auto& place : places.places()) {
    pull.places.push_back({place.node(), place.address()});
    auto& node = nodes_[place.address()];
    const bool watched = !node.pulls.empty();
    node.pulls.insert(id);
    if (!watched)
      needs_.directory.Watch(place.address(), self->system().message_types<ObjectSourceActor>(), watcher_);
  }
  Measure(self, id);
}

void ModelPulls::Measure(Self* self, std::uint64_t id) {
  const auto& pull = *Find(id);
  proto::DigestRange range;
  range.set_digest(pull.object);
  range.set_length(pull.places.empty() ? 0 : terms_.limits.range_bytes);
  Call<proto::RangeDigest>(
      self, calls_, manager_, terms_.manager_timeout, std::move(range),
      [this, self, id](const absl::StatusOr<proto::RangeDigest>& reply) { Measured(self, id, reply); });
}

void ModelPulls::Measured(Self* self, std::uint64_t id, const absl::StatusOr<proto::RangeDigest>& reply) {
  auto* pull = Find(id);
  if (pull == nullptr) return;
  const auto status = StatusIn(reply);
  if (!status.ok()) return Pause(self, id, status);
  pull->retries = 0;
  pull->plan.emplace(reply->total(), pull->places.size(), terms_.limits, pull->relays);
  if (!pull->places.empty()) pull->digests[0] = reply->sha256();
  bool awaits = false;
  for (std::size_t i = 0; i < pull->places.size(); ++i) {
    const bool reached = nodes_.at(pull->places[i].address).actor != nullptr;
    if (reached) pull->plan->Reached(i + 1);
    awaits = awaits || !reached;
  }
  if (awaits) After(self, terms_.reach_timeout, MakeTick(kReachTick, id));
  if (pull->relays > 0) After(self, terms_.relay_beat, MakeTick(kBeatTick, id));
  Go(self, id);
}

// What has come is kept: the manager is likely to be back soon.
void ModelPulls::Pause(Self* self, std::uint64_t id, const absl::Status& why) {
  auto& pull = *Find(id);
  if (!absl::IsUnavailable(why) || pull.retries >= terms_.manager_retries) return End(self, id, why);
  if (std::exchange(pull.paused, true)) return;
  ++pull.retries;
  // What sources offered would be released there before its digest is known.
  for (const auto& [offset, offer] : std::exchange(pull.unchecked, {})) Drop(self, id, offer);
  After(self, terms_.manager_retry, MakeTick(kGoOnTick, id));
}

void ModelPulls::GoOn(Self* self, std::uint64_t id) {
  auto* pull = Find(id);
  if (pull == nullptr) return;
  pull->paused = false;
  if (!pull->plan) return Measure(self, id);
  std::erase_if(pull->digests, [](const auto& digest) { return digest.second.empty(); });
  Go(self, id);
}

void ModelPulls::StopAwaiting(Self* self, std::uint64_t id) {
  auto* pull = Find(id);
  if (pull == nullptr || !pull->plan) return;
  pull->plan->StopAwaiting();
  Go(self, id);
}

void ModelPulls::Beat(Self* self, std::uint64_t id) {
  auto* pull = Find(id);
  if (pull == nullptr) return;
  pull->plan->Beat();
  After(self, terms_.relay_beat, MakeTick(kBeatTick, id));
  Go(self, id);
}

void ModelPulls::NodeUp(Self* self, const std::string& address, const caf::strong_actor_ptr& actor) {
  const auto it = nodes_.find(address);
  if (it == nodes_.end()) return;  // no pull needs it any more
  it->second.actor = caf::actor_cast<ObjectSourceActor>(actor);
  self->monitor(it->second.actor);
  for (const auto id : std::set<std::uint64_t>(it->second.pulls)) {
    auto* pull = Find(id);
    if (pull == nullptr || !pull->plan) continue;
    for (std::size_t i = 0; i < pull->places.size(); ++i)
      if (pull->places[i].address == address) pull->plan->Reached(i + 1);
    Go(self, id);
  }
}

void ModelPulls::NodeLost(Self* self, const std::string& address) {
  const auto it = nodes_.find(address);
  if (it == nodes_.end()) return;
  it->second.actor = nullptr;
  for (const auto id : std::set<std::uint64_t>(it->second.pulls)) {
    auto* pull = Find(id);
    if (pull == nullptr || !pull->plan) continue;
    for (std::size_t i = 0; i < pull->places.size(); ++i)
      if (pull->places[i].address == address) pull->plan->LeaveOut(i + 1);
    Go(self, id);
  }
}

void ModelPulls::Go(Self* self, std::uint64_t id) {
  // Asking may fail at once, and so end the pull.
  while (auto* pull = Find(id)) {
    if (pull->paused) return;
    if (pull->plan->stranded()) return End(self, id, pull->why);
    const auto question = pull->plan->Next();
    if (!question) return;
    Ask(self, id, *question);
  }
}

ObjectSourceActor ModelPulls::SourceOf(const OnePull& pull, node::ObjectPull::Source source) const {
  if (source == node::ObjectPull::kManager) return caf::actor_cast<ObjectSourceActor>(manager_);
  return nodes_.at(pull.places[source - 1].address).actor;
}

Duration ModelPulls::TimeoutOf(const OnePull& pull, node::ObjectPull::Source source) const {
  if (source == node::ObjectPull::kManager) return terms_.manager_timeout;
  return pull.plan->relays(source) ? terms_.relay_timeout : terms_.node_timeout;
}

void ModelPulls::Ask(Self* self, std::uint64_t id, const Question& question) {
  auto& pull = *Find(id);
  const bool manager = question.source == node::ObjectPull::kManager;
  const auto source = SourceOf(pull, question.source);
  // The manager gives the range itself, or the digest of another node's.
  if (!manager_ && (manager || !pull.digests.contains(question.offset))) {
    pull.plan->Drop(question.ticket);
    return Pause(self, id, absl::UnavailableError("the cluster manager is not connected"));
  }
  if (!source) {
    pull.plan->Failed(question.ticket, Failure::kGone);
    return;
  }
  proto::FetchObject part;
  part.set_digest(pull.object);
  part.set_offset(question.offset);
  part.set_length(question.length);
  if (!manager) AskDigest(self, id, question.offset, question.length);
  Call<proto::FetchReply>(self, calls_, source, TimeoutOf(pull, question.source), std::move(part),
                          [this, self, id, question, source](absl::StatusOr<proto::FetchReply> reply) {
                            Answered(self, id, question, source, std::move(reply));
                          });
}

// It is computed while the bytes are on their way.
void ModelPulls::AskDigest(Self* self, std::uint64_t id, std::uint64_t offset, std::uint64_t length) {
  auto& pull = *Find(id);
  if (!pull.digests.emplace(offset, std::string()).second) return;
  proto::DigestRange range;
  range.set_digest(pull.object);
  range.set_offset(offset);
  range.set_length(length);
  Call<proto::RangeDigest>(self, calls_, manager_, terms_.manager_timeout, std::move(range),
                           [this, self, id, offset](const absl::StatusOr<proto::RangeDigest>& reply) {
                             Digested(self, id, offset, reply);
                           });
}

void ModelPulls::Digested(Self* self, std::uint64_t id, std::uint64_t offset,
                          const absl::StatusOr<proto::RangeDigest>& reply) {
  auto* pull = Find(id);
  if (pull == nullptr) return;
  const auto status = StatusIn(reply);
  if (!status.ok()) return Pause(self, id, status);
  pull->retries = 0;
  pull->digests[offset] = reply->sha256();
  const auto [begin, end] = pull->unchecked.equal_range(offset);
  std::vector<Offer> offers;
  for (auto it = begin; it != end; ++it) offers.push_back(std::move(it->second));
  pull->unchecked.erase(begin, end);
  for (const auto& offer : offers) Load(self, id, offer, reply->sha256());
}

void ModelPulls::Answered(Self* self, std::uint64_t id, const Question& question,
                          const ObjectSourceActor& source, absl::StatusOr<proto::FetchReply> reply) {
  const auto came = StatusIn(reply);
  if (!came.ok()) return Failed(self, id, question, came);
  auto* pull = Find(id);
  if (pull == nullptr || !pull->plan->Wants(question.ticket))
    return Skip(self, id, {question, *reply, source});
  if (pull->paused && question.source != node::ObjectPull::kManager)
    return Drop(self, id, {question, *reply, source});
  if (const auto status = CheckReply(*reply, pull->plan->total(), question.length); !status.ok()) {
    Release(self, source, *reply);
    return Failed(self, id, question, status);
  }
  Offer offer{question, *std::move(reply), source};
  if (question.source == node::ObjectPull::kManager) return Load(self, id, offer, std::string());
  const auto& digest = pull->digests[question.offset];
  if (!digest.empty()) return Load(self, id, offer, digest);
  pull->unchecked.emplace(question.offset, std::move(offer));
}

void ModelPulls::Drop(Self* self, std::uint64_t id, const Offer& offer) {
  Release(self, offer.source, offer.reply);
  Find(id)->plan->Drop(offer.question.ticket);
}

// Another source was faster, or the pull is over.
void ModelPulls::Skip(Self* self, std::uint64_t id, const Offer& offer) {
  Release(self, offer.source, offer.reply);
  auto* pull = Find(id);
  if (pull == nullptr) return;
  static_cast<void>(pull->plan->Arrived(offer.question.ticket));
  Go(self, id);
}

void ModelPulls::Load(Self* self, std::uint64_t id, const Offer& offer, const std::string& sha256) {
  const bool manager = offer.question.source == node::ObjectPull::kManager;
  needs_.repository.Load(
      offer.reply.data(), sha256, manager ? terms_.manager_timeout : terms_.node_timeout,
      continuations_.Make<std::string>(self, [this, self, id, offer](absl::StatusOr<std::string> bytes) {
        Release(self, offer.source, offer.reply);
        Loaded(self, id, offer.question, std::move(bytes));
      }));
}

void ModelPulls::Release(Self* self, const ObjectSourceActor& source, const proto::FetchReply& reply) {
  if (reply.release() == 0) return;
  proto::ReleaseFetched message;
  message.set_release(reply.release());
  self->send(source, std::move(message));
}

void ModelPulls::Loaded(Self* self, std::uint64_t id, const Question& question,
                        absl::StatusOr<std::string> bytes) {
  if (!bytes.ok()) return Failed(self, id, question, bytes.status());
  auto* pull = Find(id);
  if (pull == nullptr) return;
  if (pull->plan->Arrived(question.ticket)) {
    auto& from = question.source == node::ObjectPull::kManager ? counts_->from_manager : counts_->from_nodes;
    from += bytes->size();
    pull->result.bytes += bytes->size();
    pull->here[question.offset] = *std::move(bytes);
    Write(self, id);
  }
  Go(self, id);
}

void ModelPulls::Failed(Self* self, std::uint64_t id, const Question& question, const absl::Status& status) {
  auto* pull = Find(id);
  if (pull == nullptr) return;
  const auto failure = FailureOf(status);
  const bool manager = question.source == node::ObjectPull::kManager;
  if (manager && absl::IsUnavailable(status)) {
    pull->plan->Drop(question.ticket);
    return Pause(self, id, status);
  }
  if (manager) {
    // A full arena is empty again soon, so that a later try can succeed.
    pull->why = failure == Failure::kBusy ? absl::UnavailableError(status.message()) : status;
  }
  if (pull->plan->Failed(question.ticket, failure) && failure == Failure::kWrong) {
    ++counts_->wrong;
    const auto from = manager ? std::string("the cluster manager")
                              : absl::StrCat("node '", pull->places[question.source - 1].node, "'");
    pull->result.wrong.push_back(
        absl::StrCat(from, " sent wrong bytes of object ", pull->object, " from byte ", question.offset,
                     " on, and is not asked for it any more: ", std::string(status.message())));
  }
  Go(self, id);
}

void ModelPulls::Write(Self* self, std::uint64_t id) {
  auto* pull = Find(id);
  if (pull == nullptr || pull->writing) return;
  const auto offset = pull->plan->FirstHere();
  if (!offset) return;
  pull->writing = true;
  auto node = pull->here.extract(*offset);
  needs_.repository.Receive(
      pull->upload, *offset, std::move(node.mapped()), false, pull->object,
      continuations_.Make<std::uint64_t>(
          self, [this, self, id, offset = *offset](const absl::StatusOr<std::uint64_t>& size) {
            auto* written = Find(id);
            if (written == nullptr) return;
            written->writing = false;
            if (!size.ok()) return End(self, id, size.status());
            written->plan->Kept();
            written->digests.erase(offset);
            needs_.relayed.Came(self, written->object, {written->upload, written->plan->total(), *size});
            if (written->plan->done()) return Finish(self, id);
            Write(self, id);
            Go(self, id);
          }));
}

// The sync of the whole takes its time: nodes that follow this one have had the last range before it.
void ModelPulls::Finish(Self* self, std::uint64_t id) {
  const auto& pull = *Find(id);
  needs_.repository.Receive(
      pull.upload, pull.plan->total(), std::string(), true, pull.object,
      continuations_.Make<std::uint64_t>(self, [this, self, id](const absl::StatusOr<std::uint64_t>& size) {
        if (Find(id) != nullptr) End(self, id, size.status());
      }));
}

void ModelPulls::End(Self* self, std::uint64_t id, absl::Status status) {
  auto pull = std::move(pulls_.extract(id).mapped());
  for (const auto& [offset, offer] : pull.unchecked) Release(self, offer.source, offer.reply);
  if (!status.ok()) needs_.repository.Abandon(pull.upload);
  for (const auto& place : pull.places) {
    const auto it = nodes_.find(place.address);
    if (it == nodes_.end()) continue;
    it->second.pulls.erase(id);
    if (!it->second.pulls.empty()) continue;
    nodes_.erase(it);
    needs_.directory.Forget(place.address, watcher_);
  }
  pull.result.status = std::move(status);
  pull.done(std::move(pull.result));
}

ModelPulls::OnePull* ModelPulls::Find(std::uint64_t id) {
  const auto it = pulls_.find(id);
  return it == pulls_.end() ? nullptr : &it->second;
}

void ModelPulls::Clear() {
  calls_.Clear();
  continuations_.Clear();
  pulls_.clear();
  nodes_.clear();
  manager_ = nullptr;
  watcher_ = nullptr;
}

}  // namespace troupe::actors
