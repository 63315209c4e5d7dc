#include "cluster/admin/sharing_changes.hpp"

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/failure.hpp"
#include "cluster/function_sharing.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void SharingChanges::Update(Ask ask, const proto::UpdateFunction& wish) {
  parts_.mutations.Add(Updating{.ask = ask, .wish = wish});
}

absl::Status SharingChanges::Validate(Updating& change) const {
  TROUPE_ASSIGN_OR_RETURN(auto command, parts_.catalogue.functions().ValidateSharing(change.wish));
  command.set_unix_ns(parts_.out.unix_now());
  change.key = command.key();
  const auto& record = *parts_.catalogue.functions().table().Find(command.key());
  if (!google::protobuf::util::MessageDifferencer::Equals(record.sharing(), command.sharing()))
    change.commands.push_back(std::move(command));
  return absl::OkStatus();
}

void SharingChanges::Answer(const Updating& change, const absl::Status& status) {
  if (!status.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
  for (const auto& command : change.commands)
    parts_.out.Tell("manager", "function-updated",
                    absl::StrCat(Describe(command.key()), ": ", DescribeSharing(command.sharing())));
  parts_.admin.Reply(change.ask, AnswerFunctionQuery(change.key, parts_.State()));
}

}  // namespace troupe::cluster
