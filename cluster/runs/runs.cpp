#include "cluster/runs/runs.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void Runs::Answer(Ask ask, proto::RunReply reply) {
  parts_.out.Add(cluster::Answer<proto::RunReply>{ask, std::move(reply)});
}

absl::Status Runs::Check(proto::StartRun& command) const {
  const auto& catalogue = parts_.catalogue;
  TROUPE_RETURN_IF_ERROR(catalogue.runs().ValidateStart(command));
  // A run that was begun goes on also when its workflow was removed.
  if (catalogue.runs().Find(command.run()) != nullptr) return absl::OkStatus();
  const auto* workflow = catalogue.workflows().Find(command.workflow(), command.version());
  if (workflow == nullptr)
    return absl::NotFoundError(absl::StrCat("there is no workflow '", command.workflow(), "'"));
  command.set_version(workflow->spec().version());
  return absl::OkStatus();
}

void Runs::On(StartAsked& event) {
  auto& command = event.command;
  const auto& run = command.run();
  const auto asker = event.asker;
  if (const auto status = Check(command); !status.ok())
    return Answer(event.ask, Failure<proto::RunReply>(status));
  if (asker.exists()) parts_.out.Add(WatchRunner{asker});
  const auto* known = parts_.catalogue.runs().Find(run);
  const auto owner = parts_.owners.Find(run);
  // A run that failed for a passing reason goes on for a submission; an actor that had it hears how it ended.
  const bool reopens = known != nullptr && asker.exists() && !command.resumes() && MayReopen(*known);
  const bool ended = known != nullptr && RunEnded(known->state()) && !reopens;
  if (!ended && asker.exists() && owner.exists() && owner != asker) {
    const auto status = command.resumes()
                            ? absl::AbortedError(absl::StrCat("another has run '", run, "' now"))
                            : parts_.owners.Await(run, asker, event.ask);
    DropAsks();
    if (!status.ok()) Answer(event.ask, Failure<proto::RunReply>(status));
    return;
  }
  if (known != nullptr && !reopens && (ended || !asker.exists() || owner == asker))
    return Answer(event.ask, Reply(run));
  if (known != nullptr) return parts_.claims.Own(event.ask, command, asker);
  if (asker.exists()) parts_.owners.Add(run, asker);
  Begin(event.ask, std::move(command));
}

void Runs::DropAsks() {
  for (const auto ask : parts_.owners.TakeDropped()) parts_.out.Add(DropAsk{ask});
}

void Runs::Begin(Ask ask, proto::StartRun command) {
  if (!BeginCommit(command.run(), ask)) return;
  command.clear_resumes();
  command.set_unix_ns(parts_.out.unix_now());
  parts_.catalogue.BeginStart(command);
  parts_.unwritten.WrittenAnew(command.run());
  auto changes = ChangesFor(parts_.catalogue, command);
  parts_.commits.Add(std::move(changes), StartStored{std::move(command)});
}

void Runs::On(const StartStored& stored, const absl::Status& status) {
  const auto& command = stored.command;
  const auto& run = command.run();
  if (!status.ok()) {
    parts_.catalogue.StartFailed(run);
    Over(run, status);
  } else {
    parts_.catalogue.Apply(command);
    if (!parts_.owners.Find(run).exists()) parts_.owners.Release(run, parts_.out.now());
  }
  EndCommit(run, run, status);
  if (!status.ok()) parts_.unwritten.TakeBack({run});
}

// A question that is asked again while the disk is slow is not to be written twice.
bool Runs::BeginCommit(const std::string& what, Ask ask) {
  const auto [waiting, first] = committing_.try_emplace(what);
  waiting->second.push_back(ask);
  return first;
}

void Runs::EndCommit(const std::string& what, const std::string& run, const absl::Status& status) {
  const auto waiting = committing_.extract(what);
  for (const auto ask : waiting.mapped())
    Answer(ask, status.ok() ? Reply(run) : Failure<proto::RunReply>(status));
}

void Runs::Refuse(Ask ask, const std::string& run, std::uint64_t claim, const absl::Status& status) {
  if (absl::IsAborted(status))
    parts_.out.Tell("manager", "run-claim-refused",
                    absl::StrCat(status.message(), "; claim ", claim, " is too old"));
  auto reply = Failure<proto::RunReply>(status);
  if (const auto* known = parts_.catalogue.runs().Find(run)) {
    reply.mutable_run()->set_gateway(known->gateway());
    reply.mutable_run()->set_claim(known->claim());
  }
  Answer(ask, std::move(reply));
}

void Runs::On(const StepAsked& event) {
  const auto& command = event.command;
  const auto& run = command.run();
  const auto& log = parts_.catalogue.runs();
  if (const auto status = log.ValidateCommit(run, command.claim()); !status.ok())
    return Refuse(event.ask, run, command.claim(), status);
  const auto* known = log.FindStep(run, command.step());
  if (known != nullptr && known->recomputed() >= command.recomputed())
    return Answer(event.ask, Reply(run));  // its answer was lost: what was acknowledged stays
  const auto what = absl::StrCat(run, "/", command.step());  // no run's name has a slash
  if (!BeginCommit(what, event.ask)) return;
  auto stamped = command;
  stamped.set_unix_ns(parts_.out.unix_now());
  parts_.commits.Add(ChangesFor(parts_.catalogue, stamped), StepStored{what, stamped});
}

void Runs::On(const StepStored& stored, const absl::Status& status) {
  if (status.ok()) {
    parts_.catalogue.Apply(stored.command);
    TellRecomputed(stored.command);
  }
  EndCommit(stored.what, stored.command.run(), status);
}

void Runs::TellRecomputed(const proto::CommitStep& command) {
  if (command.recomputed() == 0) return;
  parts_.out.Tell("manager", "step-recomputed",
                  absl::StrCat("step '", command.step(), "' of run '", command.run(),
                               "': its committed result was lost, for the ", command.recomputed(),
                               ". time, and it was run again"));
}

void Runs::On(const FinishAsked& event) {
  End({event.command, Ender::kRunner, event.ask});
}

void Runs::End(EndWish wish) {
  wish.command.set_unix_ns(parts_.out.unix_now());
  if (const auto begun = parts_.changes.Add(wish); !begun.ok()) AnswerEnd(wish, begun);
}

void Runs::Store(const EndWish& wish) {
  const auto& run = wish.command.run();
  const auto& log = parts_.catalogue.runs();
  const auto* known = log.Find(run);
  if (known == nullptr)
    return Settle(wish, absl::NotFoundError(absl::StrCat("no run '", run, "' was started")));
  if (wish.command.claim() < known->claim())
    return Settle(wish, log.ValidateCommit(run, wish.command.claim()));
  if (RunEnded(known->state())) return Settle(wish, absl::OkStatus());
  parts_.commits.Add(ChangesFor(parts_.catalogue, wish.command), EndStored{wish});
}

void Runs::On(const EndStored& stored, const absl::Status& status) {
  if (status.ok()) parts_.catalogue.Apply(stored.wish.command);
  Settle(stored.wish, status);
  if (auto surplus = RemovalOf(parts_.catalogue.TakeSurplusRuns()); !surplus.empty())
    parts_.commits.Add(std::move(surplus));
}

void Runs::Settle(const EndWish& wish, const absl::Status& status) {
  const auto& run = wish.command.run();
  AnswerEnd(wish, status);
  const auto* known = parts_.catalogue.runs().Find(run);
  if (known != nullptr && RunEnded(known->state())) Over(run, absl::OkStatus());
  parts_.changes.Ended(run);
}

void Runs::AnswerEnd(const EndWish& wish, const absl::Status& status) {
  const auto& run = wish.command.run();
  switch (wish.ender) {
    case Ender::kManager:
      return;
    case Ender::kRunner:
      return status.ok() ? Answer(wish.ask, Reply(run)) : Refuse(wish.ask, run, wish.command.claim(), status);
    case Ender::kOperator:
      return parts_.workflows.Cancelled(wish.ask, run, status);
  }
}

void Runs::Over(const std::string& run, const absl::Status& status) {
  for (const auto ask : parts_.owners.End(run))
    Answer(ask, status.ok() ? Reply(run) : Failure<proto::RunReply>(status));
}

proto::RunReply Runs::Reply(const std::string& run) const {
  proto::RunReply reply;
  if (const auto* record = parts_.catalogue.runs().Find(run)) {
    *reply.mutable_run() = *record;
    if (const auto* workflow =
            parts_.catalogue.workflows().Find(record->start().workflow(), record->start().version()))
      *reply.mutable_workflow() = *workflow;
  }
  return reply;
}

}  // namespace troupe::cluster
