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
  // One that was begun goes on also when its workflow was removed.
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
  parts_.commits.Add(ChangesFor(parts_.catalogue, command),
                     [this, command](const absl::Status& status) { Begun(command, status); });
}

void Runs::Begun(const proto::StartRun& command, const absl::Status& status) {
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
  parts_.commits.Add(ChangesFor(parts_.catalogue, stamped),
                     [this, what, stamped](const absl::Status& status) {
                       if (status.ok()) {
                         parts_.catalogue.Apply(stamped);
                         TellRecomputed(stamped);
                       }
                       EndCommit(what, stamped.run(), status);
                     });
}

void Runs::TellRecomputed(const proto::CommitStep& command) {
  if (command.recomputed() == 0) return;
  parts_.out.Tell("manager", "step-recomputed",
                  absl::StrCat("step '", command.step(), "' of run '", command.run(),
                               "': its committed result was lost, for the ", command.recomputed(),
                               ". time, and it was run again"));
}

void Runs::On(const FinishAsked& event) {
  const auto& command = event.command;
  End(command,
      [this, ask = event.ask, run = command.run(), claim = command.claim()](const absl::Status& status) {
        if (!status.ok()) return Refuse(ask, run, claim, status);
        Answer(ask, Reply(run));
      });
}

void Runs::End(const proto::FinishRun& command, std::function<void(absl::Status)> done) {
  auto stamped = command;
  stamped.set_unix_ns(parts_.out.unix_now());
  const auto begun =
      parts_.owners.BeginChange(command.run(), [this, stamped, done] { StoreEnd(stamped, done); });
  if (!begun.ok()) done(begun);
}

void Runs::StoreEnd(const proto::FinishRun& command, std::function<void(absl::Status)> done) {
  const auto& run = command.run();
  const auto& log = parts_.catalogue.runs();
  const auto* known = log.Find(run);
  auto settle = [this, run, done = std::move(done)](const absl::Status& status) {
    done(status);
    const auto* now = parts_.catalogue.runs().Find(run);
    if (now != nullptr && RunEnded(now->state())) Over(run, absl::OkStatus());
    parts_.owners.EndChange(run);
  };
  if (known == nullptr) return settle(absl::NotFoundError(absl::StrCat("no run '", run, "' was started")));
  if (command.claim() < known->claim()) return settle(log.ValidateCommit(run, command.claim()));
  if (RunEnded(known->state())) return settle(absl::OkStatus());
  parts_.commits.Add(ChangesFor(parts_.catalogue, command),
                     [this, command, settle](const absl::Status& status) {
                       if (status.ok()) parts_.catalogue.Apply(command);
                       settle(status);
                       if (auto surplus = RemovalOf(parts_.catalogue.TakeSurplusRuns()); !surplus.empty())
                         parts_.commits.Add(std::move(surplus));
                     });
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
