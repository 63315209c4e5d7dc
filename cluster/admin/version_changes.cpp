#include "cluster/admin/version_changes.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"
#include "cluster/version_shares.hpp"

namespace troupe::cluster {

void VersionChanges::Split(Ask ask, const proto::SplitFunction& wish) {
  parts_.mutations.Add(Splitting{.ask = ask, .wish = wish});
}

std::string VersionChanges::WhyUnused(const proto::FunctionRecord& record, const Catalogue& catalogue) {
  const auto* versions = catalogue.functions().table().VersionsOf(record.key().name());
  if (versions == nullptr || !AreShared(*versions)) return {};
  const auto known = versions->find(VersionNumber(record.key().version()));
  if (known == versions->end() || known->second.share_percent() > 0) return {};
  return absl::StrCat("version ", record.key().version(),
                      " gets only requests that name it: ", DescribeShares(*versions), " of the others");
}

absl::Status VersionChanges::Validate(Splitting& change) const {
  TROUPE_ASSIGN_OR_RETURN(change.commands, parts_.catalogue.functions().ValidateSplit(change.wish));
  for (auto& command : change.commands) command.set_unix_ns(parts_.out.unix_now());
  return absl::OkStatus();
}

void VersionChanges::Answer(const Splitting& change, const absl::Status& status) {
  if (!status.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
  proto::FunctionKey key;
  key.set_name(change.wish.name());
  if (const auto* versions = parts_.catalogue.functions().table().VersionsOf(key.name()))
    parts_.out.Tell("manager", "function-split",
                    absl::StrCat(Describe(key), ": ", DescribeShares(*versions)));
  parts_.admin.Reply(change.ask, AnswerFunctionQuery(key, parts_.State()));
}

}  // namespace troupe::cluster
