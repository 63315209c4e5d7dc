#include "cluster/runs/claims.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

namespace {

bool Gone(const Member* member) {
  return member != nullptr &&
         (member->record.state() == proto::MEMBER_DEAD || member->record.state() == proto::MEMBER_LEFT);
}

}  // namespace

void Claims::Start() {
  for (const auto* run : parts_.catalogue.runs().List(""))
    if (!RunEnded(run->state())) parts_.owners.Release(run->start().run(), parts_.out.now());
}

void Claims::Own(Ask ask, const proto::StartRun& command, Runner asker) {
  const auto& run = command.run();
  const auto released = parts_.owners.released().find(run);
  const bool told = released != parts_.owners.released().end() && released->second.claimed &&
                    released->second.next == command.gateway();
  if (told) {  // it was claimed for this gateway
    parts_.owners.Add(run, asker);
    return parts_.runs.Answer(ask, parts_.runs.Reply(run));
  }
  parts_.owners.Reserve(run, asker);
  const auto* before = parts_.catalogue.runs().Find(run);
  Claim({run, command.gateway(), ask, before->gateway(),
         RunEnded(before->state()) ? before->message() : std::string()});
}

void Claims::Owned(const ClaimWish& wish, const absl::Status& status) {
  const auto& run = wish.run;
  auto& owners = parts_.owners;
  const auto* known = parts_.catalogue.runs().Find(run);
  TROUPE_CHECK(!status.ok() || known != nullptr, "a run was forgotten while its claim was stored");
  if (status.ok()) TellFormer(owners.Commit(run), *known);
  const bool over = known == nullptr || RunEnded(known->state());
  if (status.ok() && !wish.failure.empty())
    parts_.out.Tell(wish.gateway, "run-reopened",
                    absl::StrCat("run '", run, "' had failed (", wish.failure, ") and goes on"));
  if (status.ok() && wish.failure.empty() && wish.former_gateway != wish.gateway)
    parts_.out.Tell(wish.gateway, "run-taken-over",
                    absl::StrCat("run '", run, "' of gateway '", wish.former_gateway, "'"));
  // The asker was lost while its claim was stored. The run that it reopened had ended until then, so it was not released.
  if (status.ok() && !over && !owners.Find(run).exists() && !owners.released().contains(run))
    owners.Release(run, parts_.out.now());
  if (over && known != nullptr) parts_.runs.Over(run, absl::OkStatus());
  if (status.ok() || (over && known != nullptr)) return parts_.runs.Answer(wish.ask, parts_.runs.Reply(run));
  if (!over) owners.Withdraw(run, parts_.out.now());
  parts_.runs.Answer(wish.ask, Failure<proto::RunReply>(status));
}

void Claims::Claim(ClaimWish wish) {
  if (const auto begun = parts_.changes.Add(wish); !begun.ok()) Claimed(wish, begun);
}

absl::Status Claims::Check(const ClaimWish& wish) const {
  const auto* known = parts_.catalogue.runs().Find(wish.run);
  const bool reopens = wish.ask != 0 && known != nullptr && MayReopen(*known);
  if (known == nullptr || (RunEnded(known->state()) && !reopens))
    return absl::FailedPreconditionError(absl::StrCat("run '", wish.run, "' has ended"));
  if (wish.ask == 0 && !parts_.owners.released().contains(wish.run))
    return absl::CancelledError("it is not wanted any more");
  return absl::OkStatus();
}

void Claims::Store(const ClaimWish& wish) {
  if (const auto status = Check(wish); !status.ok()) return Settle(wish, status);
  auto command = parts_.catalogue.BeginClaim(wish.run, wish.gateway);
  command.set_unix_ns(parts_.out.unix_now());
  auto changes = ChangesFor(parts_.catalogue, command);
  parts_.commits.Add(std::move(changes), ClaimStored{wish, std::move(command)});
}

void Claims::On(const ClaimStored& stored, const absl::Status& status) {
  if (status.ok()) {
    parts_.catalogue.Apply(stored.command);
  } else {
    parts_.catalogue.ClaimFailed(stored.command.run());
  }
  Settle(stored.wish, status);
}

void Claims::Settle(const ClaimWish& wish, const absl::Status& status) {
  Claimed(wish, status);
  parts_.changes.Ended(wish.run);
}

void Claims::Claimed(const ClaimWish& wish, const absl::Status& status) {
  if (wish.ask != 0) return Owned(wish, status);
  if (!status.ok()) return;
  TellFormer(parts_.owners.Former(wish.run), *parts_.catalogue.runs().Find(wish.run));
  GoOnAt(wish.gateway, wish.run);
}

void Claims::On(const RunnerLost& event) {
  const auto runs = parts_.owners.Remove(event.runner);
  for (const auto ask : parts_.owners.TakeDropped()) parts_.out.Add(DropAsk{ask});
  for (const auto& run : runs) {
    const auto* known = parts_.catalogue.runs().Find(run);
    if (known == nullptr) {
      parts_.runs.Over(
          run, absl::UnavailableError(absl::StrCat("run '", run, "' was never begun; submit it again")));
    } else if (!RunEnded(known->state())) {
      parts_.owners.Release(run, parts_.out.now());
    }
  }
}

void Claims::GatewayLost(const std::string& gateway) {
  auto unfinished = parts_.catalogue.runs().Unfinished();
  for (const auto& run : unfinished[gateway]) parts_.owners.Release(run, parts_.out.now());
}

void Claims::Reattach() {
  const auto& fronts = parts_.members.fronts();
  std::vector<std::string> found;
  for (const auto& [run, entry] : parts_.owners.released()) {
    const auto* known = parts_.catalogue.runs().Find(run);
    if (known == nullptr || !entry.next.empty() || !entry.last.exists()) continue;
    const auto front = fronts.find(known->gateway());
    if (front != fronts.end() && front->second == entry.last.process) found.push_back(run);
  }
  for (const auto& run : found) parts_.owners.Reattach(run);
}

std::vector<RunGateway> Claims::Gateways() const {
  const auto unfinished = parts_.catalogue.runs().Unfinished();
  std::vector<RunGateway> gateways;
  for (const auto& [name, process] : parts_.members.fronts()) {
    const auto* member = parts_.members.table().Find(name);
    if (member == nullptr || member->record.state() != proto::MEMBER_ALIVE) continue;
    const auto runs = unfinished.find(name);
    gateways.push_back({name, runs == unfinished.end() ? 0 : runs->second.size()});
  }
  return gateways;
}

std::vector<LooseRun> Claims::LooseRuns() const {
  std::vector<LooseRun> loose;
  for (const auto& [run, state] : parts_.owners.released()) {
    const auto* known = parts_.catalogue.runs().Find(run);
    if (known == nullptr) continue;
    const auto& gateway = state.next.empty() ? known->gateway() : state.next;
    loose.push_back({run, gateway, Gone(parts_.members.table().Find(gateway)), state.since});
  }
  return loose;
}

void Claims::TakeOver() {
  Reattach();
  if (parts_.owners.released().empty() || parts_.members.fronts().empty()) return;
  const auto now = parts_.out.now();
  for (const auto& [run, gateway] : PlanTakeovers(LooseRuns(), Gateways(), now, parts_.settings.run_grace)) {
    // Not planned again while this is on its way.
    parts_.owners.Release(run, now, gateway);
    Claim({.run = run, .gateway = gateway});
  }
}

void Claims::TellFormer(Runner former, const proto::RunRecord& run) {
  if (!former.exists()) return;
  proto::RunTaken taken;
  taken.set_claim(run.claim());
  parts_.out.Add(TellTaken{former, std::move(taken)});
}

void Claims::GoOnAt(const std::string& gateway, const std::string& run) {
  if (!parts_.owners.Claimed(run) || !parts_.members.fronts().contains(gateway)) return;
  auto answer = parts_.runs.Reply(run);
  if (!answer.has_workflow()) {
    proto::FinishRun command;
    command.set_run(run);
    command.set_state(proto::RUN_FAILED);
    command.set_message("its gateway was lost, and its workflow was removed: no gateway can go on with it");
    command.set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
    command.set_claim(kAnyClaim);
    return parts_.runs.End({.command = std::move(command)});
  }
  parts_.out.Tell(
      gateway, "run-taken-over",
      absl::StrCat("run '", run, "' goes on behind ", answer.run().steps_size(), " committed steps"));
  proto::ContinueRun message;
  *message.mutable_run() = std::move(*answer.mutable_run());
  *message.mutable_workflow() = std::move(*answer.mutable_workflow());
  parts_.out.Add(GoOn{gateway, std::move(message)});
}

}  // namespace troupe::cluster
