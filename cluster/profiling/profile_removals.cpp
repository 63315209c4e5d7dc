#include "cluster/profiling/profile_removals.hpp"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "cluster/admin/staged_models.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void ProfileRemovals::Remove(Ask ask, const proto::RemoveProfile& wish) {
  parts_.mutations.Add(DroppingProfiles{.ask = ask, .wish = wish});
}

absl::Status ProfileRemovals::Validate(DroppingProfiles& change) const {
  const auto& wish = change.wish;
  const auto* function = parts_.catalogue.functions().table().Find(wish.key());
  if (function == nullptr) return NotOneFunction(parts_.catalogue, wish.key());
  std::vector<std::string> kinds;
  for (const auto& [name, profile] : parts_.catalogue.profiles().profiles()) {
    if (profile.model_digest() != function->model_digest() || profile.precision() != function->precision())
      continue;
    kinds.push_back(absl::StrCat("'", profile.gpu_kind(), "'"));
    if (!wish.gpu_kind().empty() && wish.gpu_kind() != profile.gpu_kind()) continue;
    auto& dropped = *change.commands.emplace_back().mutable_profile();
    dropped.set_model_digest(profile.model_digest());
    dropped.set_gpu_kind(profile.gpu_kind());
    dropped.set_precision(profile.precision());
  }
  if (!change.commands.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      Describe(function->key()), " has no profile",
      kinds.empty()
          ? std::string(" in its precision")
          : absl::StrCat(" on '", wish.gpu_kind(), "'; there are profiles on ", absl::StrJoin(kinds, ", "))));
}

void ProfileRemovals::Answer(const DroppingProfiles& change, const absl::Status& status) {
  if (!status.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
  proto::AdminReply reply;
  for (const auto& command : change.commands) {
    const auto& profile = command.profile();
    parts_.out.Tell("manager", "profile-removed",
                    absl::StrCat("model ", profile.model_digest(), " on ", profile.gpu_kind()));
    *reply.add_profiles() = profile;
  }
  parts_.admin.Reply(change.ask, std::move(reply));
}

}  // namespace troupe::cluster
