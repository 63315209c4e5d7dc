// The cluster manager: faults that an operator injects into a member, or into the manager itself.
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/manager/cluster_manager_actor.hpp"

namespace troupe::actors {

namespace {

constexpr char kMyself[] = "manager";

// "kill-worker, GPU 1", "stop-daemon for 2s"
std::string Describe(const proto::InjectFault& fault) {
  auto text = FaultName(fault.kind());
  if (IsOfWorker(fault.kind())) absl::StrAppend(&text, ", GPU ", fault.gpu());
  if (fault.duration_ns() > 0) absl::StrAppend(&text, " for ", FormatDuration(Duration(fault.duration_ns())));
  return text;
}

}  // namespace

void ClusterManager::InjectFault(AdminPromise promise, const proto::InjectFault& wish) {
  auto answer = [this, promise, wish](absl::StatusOr<proto::AdminReply> reply) mutable {
    if (!reply.ok()) reply = FaultAnswer(reply.status());
    if (reply->code() == 0)
      Tell(wish.member(), "fault-injected", absl::StrCat(Describe(wish), ", by an operator"));
    Deliver(promise, *std::move(reply));
  };
  // The manager's word is the cluster's: members that allow faults are safe behind one that does not.
  if (auto status = CheckFaultsAllowed(faults_, kMyself); !status.ok()) return answer(status);
  if (const auto member = links_.FaultTarget(wish.member()))
    return Call<proto::AdminReply>(this, calls_, member, options_.ask_timeout, wish, std::move(answer));
  if (wish.member() == kMyself) return answer(FaultAnswer(faults_(wish)));
  answer(absl::NotFoundError(
      absl::StrCat("there is no member '", wish.member(), "' that is connected; 'manager' is the manager")));
}

}  // namespace troupe::actors
