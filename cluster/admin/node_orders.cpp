#include "cluster/admin/node_orders.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"
#include "proto/fault_names.hpp"

namespace troupe::cluster {

namespace {

// "kill-worker, GPU 1", "stop-daemon for 2s"
std::string TextOf(const proto::InjectFault& fault) {
  auto text = FaultName(fault.kind());
  if (IsOfWorker(fault.kind())) absl::StrAppend(&text, ", GPU ", fault.gpu());
  if (fault.duration_ns() > 0) absl::StrAppend(&text, " for ", FormatDuration(Duration(fault.duration_ns())));
  return text;
}

}  // namespace

void NodeOrders::Answer(Ask ask, const absl::Status& status) {
  parts_.admin.Reply(ask, Failure<proto::AdminReply>(status));
}

void NodeOrders::Drain(Ask ask, const proto::DrainNode& wish) {
  const auto status = parts_.members.SetDraining(wish.name(), wish.drain());
  // Such a node is gone, or was not heard of since the manager started: it hears of the drain, or of its end, when it joins.
  const bool away = absl::IsFailedPrecondition(status) || parts_.catalogue.Drained(wish.name());
  if (!status.ok() && !away) return Answer(ask, status);
  parts_.members.Pulse();
  parts_.commits.Add(DrainChanges(wish.name(), wish.drain()), DrainStored{ask, wish});
}

void NodeOrders::On(const DrainStored& stored, const absl::Status& status) {
  const auto& wish = stored.wish;
  auto& members = parts_.members;
  if (status.ok()) parts_.catalogue.ApplyDrain(wish.name(), wish.drain());
  // It may have joined anew meanwhile, as what was stored then.
  static_cast<void>(members.SetDraining(wish.name(), parts_.catalogue.Drained(wish.name())));
  members.Pulse();
  if (!status.ok()) return Answer(stored.ask, status);
  if (members.HasNode(wish.name())) return parts_.out.Add(AskDrain{stored.ask, wish});
  proto::AdminReply reply;
  reply.set_message("the node is not connected, and hears of it when it joins");
  parts_.admin.Reply(stored.ask, std::move(reply));
}

void NodeOrders::On(const DrainAnswered& event) {
  if (event.ask != 0) Answer(event.ask, event.status);
}

void NodeOrders::Kill(Ask ask, const proto::KillGpu& wish) {
  if (!parts_.members.HasNode(wish.node()))
    return Answer(
        ask, absl::NotFoundError(absl::StrCat("there is no node '", wish.node(), "' that is connected")));
  const auto* member = parts_.members.table().Find(wish.node());
  if (member == nullptr || wish.gpu() >= static_cast<std::uint32_t>(member->record.gpus_size()))
    return Answer(ask, absl::NotFoundError(absl::StrCat("node '", wish.node(), "' has no GPU ", wish.gpu(),
                                                        "; `troupe gpu list` shows those that it has")));
  parts_.out.Tell(wish.node(), "gpu-killed", absl::StrCat("GPU ", wish.gpu(), ", by an operator"));
  parts_.out.Add(KillGpu{wish});
  Answer(ask, absl::OkStatus());
}

void NodeOrders::On(FaultCarried& event) {
  if (event.reply.code() == 0)
    parts_.out.Tell(event.fault.member(), "fault-injected",
                    absl::StrCat(TextOf(event.fault), ", by an operator"));
  parts_.admin.Reply(event.ask, std::move(event.reply));
}

}  // namespace troupe::cluster
