#include "cluster/admin/sharing_changes.hpp"

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/admin/staged_models.hpp"
#include "cluster/failure.hpp"
#include "cluster/function_sharing.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void SharingChanges::Update(Ask ask, const proto::UpdateFunction& wish) {
  parts_.mutations.Add(Updating{.ask = ask, .wish = wish});
}

absl::Status SharingChanges::Validate(Updating& change) const {
  const auto stages = StagesOf(parts_.catalogue.workflows(), change.wish.key());
  if (stages.empty()) {
    TROUPE_ASSIGN_OR_RETURN(change.key, AddUpdate(change.wish, change.commands));
    return absl::OkStatus();
  }
  change.key = change.wish.key();
  for (const auto& stage : stages) {
    auto wish = change.wish;
    *wish.mutable_key() = stage;
    TROUPE_RETURN_IF_ERROR(AddUpdate(wish, change.commands).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<proto::FunctionKey> SharingChanges::AddUpdate(
    const proto::UpdateFunction& wish, std::vector<proto::SetFunctionSharing>& commands) const {
  TROUPE_ASSIGN_OR_RETURN(auto command, parts_.catalogue.functions().ValidateSharing(wish));
  command.set_unix_ns(parts_.out.unix_now());
  const auto key = command.key();
  const auto& record = *parts_.catalogue.functions().table().Find(key);
  auto changed = record;
  *changed.mutable_sharing() = command.sharing();
  FillIn(changed);
  *command.mutable_sharing() = changed.sharing();
  if (!google::protobuf::util::MessageDifferencer::Equals(record.sharing(), command.sharing()))
    commands.push_back(std::move(command));
  return key;
}

void SharingChanges::Answer(const Updating& change, const absl::Status& status) {
  if (!status.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
  for (const auto& command : change.commands) Tell(command);
  parts_.admin.Reply(change.ask, AnswerFunctionQuery(change.key, parts_.State()));
}

void SharingChanges::Tell(const proto::SetFunctionSharing& command) {
  parts_.out.Tell("manager", "function-updated",
                  absl::StrCat(Describe(command.key()), ": ", DescribeSharing(command.sharing())));
}

// --- settings from profiles ---

void SharingChanges::FillIn(proto::FunctionRecord& record) const {
  if (record.sharing().automatic().empty() || parts_.out.now() < settled_) return;
  const auto kinds = KindsOf(parts_.members.table());
  if (kinds.empty()) return;
  *record.mutable_sharing() =
      FilledIn(record.sharing(), ValuesFromProfiles(record, parts_.catalogue.profiles(), kinds));
}

void SharingChanges::Follow() {
  const auto now = parts_.out.now();
  if (settled_ == Time::max()) settled_ = now + kSettling;
  const auto& functions = parts_.catalogue.functions();
  if (functions.table().profile_followers().empty() || now < settled_ || now < not_before_) return;
  Source source{parts_.catalogue.profiles().revision(), functions.revision(),
                KindsOf(parts_.members.table())};
  if (source == followed_) return;
  followed_ = std::move(source);
  FollowingProfiles change;
  if (Validate(change).ok() && !change.commands.empty()) parts_.mutations.Add(FollowingProfiles());
}

absl::Status SharingChanges::Validate(FollowingProfiles& change) const {
  const auto& functions = parts_.catalogue.functions().table();
  for (const FunctionVersion& version : functions.profile_followers()) {
    if (change.commands.size() >= kMostAtOnce) break;
    functions.Show(version, [&](const proto::FunctionRecord& record) {
      auto filled = record;
      FillIn(filled);
      if (google::protobuf::util::MessageDifferencer::Equals(record.sharing(), filled.sharing())) return;
      auto& command = change.commands.emplace_back();
      *command.mutable_key() = record.key();
      *command.mutable_sharing() = filled.sharing();
      command.set_unix_ns(parts_.out.unix_now());
    });
  }
  return absl::OkStatus();
}

void SharingChanges::Answer(const FollowingProfiles& change, const absl::Status& status) {
  if (status.ok()) {
    // They are a change of functions, so the next pulse looks for more.
    for (const auto& command : change.commands) Tell(command);
    return;
  }
  followed_.reset();
  not_before_ = parts_.out.now() + kRetry;
}

}  // namespace troupe::cluster
