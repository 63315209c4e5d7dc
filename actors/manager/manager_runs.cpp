// The cluster manager as keeper of the run log: what runs commit, how they end, and which gateway has them.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/manager/cluster_manager_actor.hpp"
#include "cluster/run_takeover.hpp"

namespace troupe::actors {

namespace {

bool Gone(const cluster::Member* member) {
  return member != nullptr &&
         (member->record.state() == proto::MEMBER_DEAD || member->record.state() == proto::MEMBER_LEFT);
}

}  // namespace

absl::Status ClusterManager::CheckStart(proto::StartRun& command) const {
  TROUPE_RETURN_IF_ERROR(catalogue_.runs().ValidateStart(command));
  // One that was begun goes on also when its workflow was removed.
  if (catalogue_.runs().Find(command.run()) != nullptr) return absl::OkStatus();
  const auto* workflow = catalogue_.workflows().Find(command.workflow(), command.version());
  if (workflow == nullptr)
    return absl::NotFoundError(absl::StrCat("there is no workflow '", command.workflow(), "'"));
  command.set_version(workflow->spec().version());
  return absl::OkStatus();
}

RunPromise ClusterManager::Start(proto::StartRun& command, const WorkflowRunActor& asker) {
  auto promise = make_response_promise<proto::RunReply>();
  const auto& run = command.run();
  if (const auto status = CheckStart(command); !status.ok()) {
    Deliver(promise, Failure<proto::RunReply>(status));
    return promise;
  }
  if (asker) monitor(asker);
  const auto* known = catalogue_.runs().Find(run);
  const auto owner = run_links_.Find(run);
  // A run that failed for a passing reason goes on for a submission; an actor that had it hears how it ended.
  const bool reopens = known != nullptr && asker && !command.resumes() && MayReopen(*known);
  const bool ended = known != nullptr && RunEnded(known->state()) && !reopens;
  if (!ended && asker && owner && owner != asker) {
    const auto status = command.resumes()
                            ? absl::AbortedError(absl::StrCat("another has run '", run, "' now"))
                            : run_links_.Await(run, asker.address(), promise);
    if (!status.ok()) Deliver(promise, Failure<proto::RunReply>(status));
    return promise;
  }
  if (known != nullptr && !reopens && (ended || !asker || owner == asker)) {
    Deliver(promise, RunAnswer(run));
    return promise;
  }
  if (known != nullptr) {
    Own(command, asker, promise);
    return promise;
  }
  if (asker) run_links_.Add(run, asker);
  if (!BeginCommit(run, promise)) return promise;
  command.clear_resumes();
  command.set_unix_ns(options_.unix_now());
  catalogue_.BeginStart(command);
  unwritten_.erase(run);  // it is written anew
  Commit(catalogue_.BatchFor(command), [this, command](const absl::Status& status) {
    if (!status.ok()) {
      catalogue_.StartFailed(command.run());
      RunOver(command.run(), status);
    } else {
      catalogue_.Apply(command);
      if (!run_links_.Find(command.run())) run_links_.Loosen(command.run(), Now(this));
    }
    EndCommit(command.run(), command.run(), status);
    if (!status.ok()) TakeBack({command.run()});
  });
  return promise;
}

// Who asks again while the disk is slow is not to have it written twice.
bool ClusterManager::BeginCommit(const std::string& what, const RunPromise& promise) {
  const auto [waiting, first] = committing_.try_emplace(what);
  waiting->second.push_back(promise);
  return first;
}

void ClusterManager::EndCommit(const std::string& what, const std::string& run, const absl::Status& status) {
  auto waiting = committing_.extract(what);
  for (auto& promise : waiting.mapped())
    Deliver(promise, status.ok() ? RunAnswer(run) : Failure<proto::RunReply>(status));
}

// A start that failed may lie on the disk all the same, and its submitter was told that it did not begin: it
// is not to begin by itself when a manager reads the store again. Until it is gone from there the same key
// may be submitted anew, which writes over it.
void ClusterManager::TakeBack(const std::set<std::string>& runs) {
  if (unwritten_.empty()) After(this, options_.take_back_retry, MakeTick(kTakeBack));
  for (const auto& run : runs)
    if (catalogue_.runs().Find(run) == nullptr && !committing_.contains(run)) unwritten_.insert(run);
}

void ClusterManager::TakeBackNow() {
  const auto runs = std::exchange(unwritten_, {});
  if (runs.empty()) return;
  Commit(Catalogue::NoStartBatch(runs), [this, runs](const absl::Status& status) {
    if (!status.ok()) TakeBack(runs);
  });
}

// The run has no owner: now the asker owns it, under a claim of its own, so that an earlier owner commits
// nothing, and hears of it if it lives.
void ClusterManager::Own(const proto::StartRun& command, const WorkflowRunActor& asker, RunPromise promise) {
  const auto& run = command.run();
  const auto loose = run_links_.loose().find(run);
  const bool told =
      loose != run_links_.loose().end() && loose->second.claimed && loose->second.next == command.gateway();
  if (told) {  // it was claimed for this gateway
    run_links_.Add(run, asker);
    return Deliver(promise, RunAnswer(run));
  }
  run_links_.Pledge(run, asker);
  const auto* before = catalogue_.runs().Find(run);
  const auto from = before->gateway();
  const auto why = RunEnded(before->state()) ? before->message() : std::string();
  Claim(
      run, command.gateway(), Reopening::kAllowed, [] { return true; },
      [this, promise, run, from, why, gateway = command.gateway()](const absl::Status& status) mutable {
        const auto* known = catalogue_.runs().Find(run);
        if (status.ok()) TellTaken(run_links_.Redeem(run), *known);
        const bool over = known == nullptr || RunEnded(known->state());
        if (status.ok() && !why.empty())
          Tell(gateway, "run-reopened", absl::StrCat("run '", run, "' had failed (", why, ") and goes on"));
        if (status.ok() && why.empty() && from != gateway)
          Tell(gateway, "run-taken-over", absl::StrCat("run '", run, "' of gateway '", from, "'"));
        if (over && known != nullptr) RunOver(run, absl::OkStatus());
        if (status.ok() || (over && known != nullptr)) return Deliver(promise, RunAnswer(run));
        if (!over) run_links_.GiveBack(run, Now(this));
        Deliver(promise, Failure<proto::RunReply>(status));
      });
}

RunPromise ClusterManager::Refuse(RunPromise promise, const std::string& run, std::uint64_t claim,
                                  const absl::Status& status) {
  if (absl::IsAborted(status))
    Tell("manager", "run-claim-refused", absl::StrCat(status.message(), "; claim ", claim, " is too old"));
  auto reply = Failure<proto::RunReply>(status);
  if (const auto* known = catalogue_.runs().Find(run)) {
    reply.mutable_run()->set_gateway(known->gateway());
    reply.mutable_run()->set_claim(known->claim());
  }
  Deliver(promise, std::move(reply));
  return promise;
}

RunPromise ClusterManager::Record(const proto::CommitStep& command) {
  auto promise = make_response_promise<proto::RunReply>();
  const auto& run = command.run();
  if (const auto status = catalogue_.runs().ValidateCommit(run, command.claim()); !status.ok())
    return Refuse(promise, run, command.claim(), status);
  const auto* known = catalogue_.runs().FindStep(run, command.step());
  if (known != nullptr && known->recomputed() >= command.recomputed()) {
    Deliver(promise, RunAnswer(run));  // its answer was lost: what was acknowledged stays
    return promise;
  }
  const auto what = absl::StrCat(run, "/", command.step());  // no run's name has a slash
  if (!BeginCommit(what, promise)) return promise;
  auto stamped = command;
  stamped.set_unix_ns(options_.unix_now());
  Commit(catalogue_.BatchFor(stamped), [this, what, stamped](const absl::Status& status) {
    if (status.ok()) {
      catalogue_.Apply(stamped);
      TellRecomputed(stamped);
    }
    EndCommit(what, stamped.run(), status);
  });
  return promise;
}

void ClusterManager::TellRecomputed(const proto::CommitStep& command) {
  if (command.recomputed() == 0) return;
  Tell("manager", "step-recomputed",
       absl::StrCat("step '", command.step(), "' of run '", command.run(),
                    "': its committed result was lost, for the ", command.recomputed(),
                    ". time, and it was run again"));
}

RunPromise ClusterManager::Record(const proto::FinishRun& command) {
  auto promise = make_response_promise<proto::RunReply>();
  EndRun(command, [this, promise, run = command.run(), claim = command.claim()](const absl::Status& status) {
    if (!status.ok()) return static_cast<void>(Refuse(promise, run, claim, status));
    auto answered = promise;
    Deliver(answered, RunAnswer(run));
  });
  return promise;
}

void ClusterManager::EndRun(const proto::FinishRun& command, std::function<void(absl::Status)> done) {
  auto stamped = command;
  stamped.set_unix_ns(options_.unix_now());
  const auto begun = run_links_.TakeTurn(command.run(), [this, stamped, done] {
    const auto& run = stamped.run();
    const auto* known = catalogue_.runs().Find(run);
    auto settle = [this, run, done](const absl::Status& status) {
      done(status);
      const auto* now = catalogue_.runs().Find(run);
      if (now != nullptr && RunEnded(now->state())) RunOver(run, absl::OkStatus());
      run_links_.TurnOver(run);
    };
    if (known == nullptr) return settle(absl::NotFoundError(absl::StrCat("no run '", run, "' was started")));
    if (stamped.claim() < known->claim())
      return settle(catalogue_.runs().ValidateCommit(run, stamped.claim()));
    if (RunEnded(known->state())) return settle(absl::OkStatus());
    Commit(catalogue_.BatchFor(stamped), [this, stamped, settle](const absl::Status& status) {
      if (status.ok()) catalogue_.Apply(stamped);
      settle(status);
      if (auto surplus = catalogue_.TakeSurplusRuns(); !surplus.empty())
        Commit(std::move(surplus), [](const absl::Status&) {});
    });
  });
  if (!begun.ok()) done(begun);
}

// The callers that waited for its end hear of it; or, with an error, that it never began.
void ClusterManager::RunOver(const std::string& run, const absl::Status& status) {
  for (auto& promise : run_links_.End(run))
    Deliver(promise, status.ok() ? RunAnswer(run) : Failure<proto::RunReply>(status));
}

proto::RunReply ClusterManager::RunAnswer(const std::string& run) const {
  proto::RunReply reply;
  if (const auto* record = catalogue_.runs().Find(run)) {
    *reply.mutable_run() = *record;
    if (const auto* workflow =
            catalogue_.workflows().Find(record->start().workflow(), record->start().version()))
      *reply.mutable_workflow() = *workflow;
  }
  return reply;
}

// --- who has a run ---

void ClusterManager::Claim(const std::string& run, const std::string& gateway, Reopening reopening,
                           std::function<bool()> wanted, std::function<void(absl::Status)> done) {
  const auto begun = run_links_.TakeTurn(run, [this, run, gateway, reopening, wanted, done] {
    const auto* known = catalogue_.runs().Find(run);
    auto settle = [this, run, done](const absl::Status& status) {
      done(status);
      run_links_.TurnOver(run);
    };
    const bool reopens = reopening == Reopening::kAllowed && known != nullptr && MayReopen(*known);
    if (known == nullptr || (RunEnded(known->state()) && !reopens))
      return settle(absl::FailedPreconditionError(absl::StrCat("run '", run, "' has ended")));
    if (!wanted()) return settle(absl::CancelledError("it is not wanted any more"));
    auto command = catalogue_.BeginClaim(run, gateway);
    command.set_unix_ns(options_.unix_now());
    Commit(catalogue_.BatchFor(command), [this, command, settle](const absl::Status& status) {
      if (status.ok()) {
        catalogue_.Apply(command);
      } else {
        catalogue_.ClaimFailed(command.run());
      }
      settle(status);
    });
  });
  if (!begun.ok()) done(begun);
}

void ClusterManager::OwnerLost(const std::string& run) {
  const auto* known = catalogue_.runs().Find(run);
  if (known == nullptr)
    return RunOver(run,
                   absl::UnavailableError(absl::StrCat("run '", run, "' was never begun; submit it again")));
  if (!RunEnded(known->state())) run_links_.Loosen(run, Now(this));
}

void ClusterManager::GatewayLost(const std::string& gateway) {
  auto unfinished = catalogue_.runs().Unfinished();
  for (const auto& run : unfinished[gateway]) run_links_.Loosen(run, Now(this));
}

// A gateway was taken for dead, and is back before another could take its runs: those that run there still
// are not begun anew.
void ClusterManager::RelinkRuns() {
  std::vector<std::string> found;
  for (const auto& [run, loose] : run_links_.loose()) {
    const auto* known = catalogue_.runs().Find(run);
    if (known == nullptr || !loose.next.empty() || !loose.last) continue;
    const auto front = links_.fronts().find(known->gateway());
    if (front != links_.fronts().end() && front->second.node() == loose.last.node()) found.push_back(run);
  }
  for (const auto& run : found) run_links_.Relink(run);
}

void ClusterManager::TakeOver() {
  RelinkRuns();
  if (run_links_.loose().empty() || links_.fronts().empty()) return;
  const auto unfinished = catalogue_.runs().Unfinished();
  std::vector<cluster::RunGateway> gateways;
  for (const auto& [name, front] : links_.fronts()) {
    const auto* member = members_.Find(name);
    if (member == nullptr || member->record.state() != proto::MEMBER_ALIVE) continue;
    const auto runs = unfinished.find(name);
    gateways.push_back({name, runs == unfinished.end() ? 0 : runs->second.size()});
  }
  std::vector<cluster::LooseRun> loose;
  for (const auto& [run, state] : run_links_.loose()) {
    const auto* known = catalogue_.runs().Find(run);
    if (known == nullptr) continue;
    const auto& gateway = state.next.empty() ? known->gateway() : state.next;
    loose.push_back({run, gateway, Gone(members_.Find(gateway)), state.since});
  }
  for (const auto& [run, gateway] :
       cluster::PlanTakeovers(loose, std::move(gateways), Now(this), options_.run_grace)) {
    // Not planned again while this is on its way.
    run_links_.Loosen(run, Now(this), gateway);
    Claim(
        run, gateway, Reopening::kNone, [this, run = run] { return run_links_.loose().contains(run); },
        [this, run = run, gateway = gateway](const absl::Status& status) {
          if (!status.ok()) return;
          TellTaken(run_links_.Former(run), *catalogue_.runs().Find(run));
          GoOnAt(gateway, run);
        });
  }
}

// Its gateway was taken for dead, and yet it may live, be connected and know nothing of that.
void ClusterManager::TellTaken(const WorkflowRunActor& former, const proto::RunRecord& run) {
  if (!former) return;
  proto::RunTaken taken;
  taken.set_claim(run.claim());
  send(former, std::move(taken));
}

void ClusterManager::GoOnAt(const std::string& gateway, const std::string& run) {
  const auto front = links_.fronts().find(gateway);
  if (!run_links_.Claimed(run) || front == links_.fronts().end()) return;
  auto answer = RunAnswer(run);
  if (!answer.has_workflow()) {
    proto::FinishRun command;
    command.set_run(run);
    command.set_state(proto::RUN_FAILED);
    command.set_message("its gateway was lost, and its workflow was removed: no gateway can go on with it");
    command.set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
    command.set_claim(kAnyClaim);
    return EndRun(command, [](const absl::Status&) {});
  }
  Tell(gateway, "run-taken-over",
       absl::StrCat("run '", run, "' goes on behind ", answer.run().steps_size(), " committed steps"));
  proto::ContinueRun message;
  *message.mutable_run() = std::move(*answer.mutable_run());
  *message.mutable_workflow() = std::move(*answer.mutable_workflow());
  send(front->second, std::move(message));
}

}  // namespace troupe::actors
