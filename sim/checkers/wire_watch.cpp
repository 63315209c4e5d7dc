#include "sim/checkers/wire_watch.hpp"

#include <algorithm>
#include <caf/actor_control_block.hpp>
#include <caf/message.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/protobuf_adapter.hpp"
#include "proto/cluster.pb.h"
#include "proto/request.pb.h"

namespace troupe::sim {

namespace {

std::pair<std::uint64_t, std::uint64_t> CallOf(const caf::strong_actor_ptr& asker, caf::message_id id) {
  return {asker ? asker->id() : 0, id.request_id().integer_value()};
}

template <class Message>
const Message* As(const caf::message& content) {
  return !content.empty() && content.match_element<Message>(0) ? &content.get_as<Message>(0) : nullptr;
}

}  // namespace

void WireWatch::GaveEpoch(const Passage& passage, std::uint64_t epoch) {
  if (const auto it = given_.find(passage.to); it != given_.end() && it->second == epoch)
    return;  // told again, with what it had missed
  if (epoch <= last_epoch_)
    broken_.push_back(
        absl::StrCat(passage.to, " is given epoch ", epoch, ", and ", last_epoch_, " was given before"));
  last_epoch_ = std::max(last_epoch_, epoch);
  given_[passage.to] = epoch;
}

void WireWatch::HideRemovalsIn(proto::ClusterUpdate& update) {
  auto& removed = *update.mutable_removed();
  const auto hidden = std::ranges::remove_if(
      removed, [&](const auto& key) { return key.name() == plants_.without_removals; });
  removed.erase(hidden.begin(), hidden.end());
  for (auto& function : *update.mutable_functions()) {
    if (function.key().name() != plants_.without_removals) continue;
    const auto& first =
        deployed_.try_emplace(function.key().version(), function.deployed_unix_ns()).first->second;
    function.set_deployed_unix_ns(first);
  }
}

void WireWatch::Sent(const Passage& passage, const caf::message& content) {
  if (const auto* join = As<proto::JoinReply>(content); join && join->code() == 0)
    GaveEpoch(passage, join->epoch());
  if (const auto* grant = As<proto::CreditGrant>(content)) told_[grant->node()] = grant->node_epoch();
  if (!passage.id.is_response()) return;
  const auto call = CallOf(passage.receiver, passage.id);
  if (const auto* reply = As<proto::HeartbeatReply>(content)) {
    const auto stale = stale_heartbeats_.extract(call);
    if (!stale.empty() && reply->known()) broken_.push_back(stale.mapped());
  }
  if (const auto* reply = As<proto::SubmitReply>(content)) {
    const auto stale = stale_calls_.extract(call);
    if (!stale.empty() && reply->has_served()) broken_.push_back(stale.mapped());
  }
}

void WireWatch::Arrives(const Passage& passage, caf::message& content) {
  const auto call = CallOf(passage.sender, passage.id);
  if (const auto* beat = As<proto::Heartbeat>(content)) {
    const auto given = given_.find(beat->name());
    if (given != given_.end() && beat->epoch() < given->second)
      stale_heartbeats_[call] = absl::StrCat(beat->name(), " is heard with epoch ", beat->epoch(),
                                             ", and it was given ", given->second);
  }
  if (plants_.hide_images && As<proto::TakeOverStates>(content) != nullptr)
    content.get_mutable_as<proto::TakeOverStates>(0).clear_images();
  if (plants_.drop_copies && As<proto::CopyImage>(content) != nullptr)
    content.get_mutable_as<proto::CopyImage>(0).set_ended(true);
  if (!plants_.without_removals.empty() && As<proto::ClusterUpdate>(content) != nullptr &&
      passage.to.starts_with("node-"))
    HideRemovalsIn(content.get_mutable_as<proto::ClusterUpdate>(0));
  const auto* submit = As<proto::SubmitRequest>(content);
  if (submit == nullptr) return;
  if (!plants_.without_removals.empty() && submit->function().name() == plants_.without_removals) {
    content.get_mutable_as<proto::SubmitRequest>(0).clear_deployed_unix_ns();
    submit = As<proto::SubmitRequest>(content);
  }
  const auto told = told_.find(passage.to);
  if (told == told_.end() || told->second == submit->node_epoch()) return;
  ++stale_;
  stale_calls_[call] = absl::StrCat(passage.to, " served a request for epoch ", submit->node_epoch(),
                                    ", and its own is ", told->second);
  if (plants_.hide_epochs) content.get_mutable_as<proto::SubmitRequest>(0).set_node_epoch(told->second);
}

}  // namespace troupe::sim
