#include "actors/gateway/run_session.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

absl::Status VersionGone(const std::string& run, const std::string& version) {
  return absl::FailedPreconditionError(absl::StrCat("run '", run, "' was begun with version ", version,
                                                    " of the workflow, which is not there any more"));
}

void RunSession::Up(ClusterManagerActor manager) {
  if (!limits_.logged) return;
  manager_ = std::move(manager);
  registration_.done = false;
  registration_.under_way = false;
  ++registration_.life;  // what the last one still says of this run is old
  Start();
}

void RunSession::Lost() {
  if (!limits_.logged) return;
  manager_ = ClusterManagerActor();
  Unregistered();
}

void RunSession::Register(proto::StartRun start, Time expiry, OnRegistered on_registered) {
  registration_.start = std::move(start);
  registration_.expiry = expiry;
  registration_.then = std::move(on_registered);
  registration_.before = registration_.done = registration_.under_way = false;
  ++registration_.life;
  Drop();
  Start();
}

void RunSession::Drop() {
  ++generation_;
  waiting_.clear();
}

void RunSession::Start() {
  if (!registration_.then || registration_.done || registration_.under_way) return;
  if (!limits_.logged) {
    proto::RunReply begun;
    *begun.mutable_run()->mutable_start() = registration_.start;
    begun.mutable_run()->set_state(proto::RUN_RUNNING);
    return Started(begun, registration_.life);
  }
  if (!manager_) return Arm();
  registration_.under_way = true;
  registration_.start.set_resumes(registration_.before);
  // Beside it our own handle, so that a cancellation by an operator comes here at once.
  const auto remaining =
      registration_.before ? limits_.timeout : std::max(registration_.expiry - Now(self_), Duration(1));
  Call<proto::RunReply>(
      self_, calls_, manager_, std::min(limits_.timeout, remaining), registration_.start,
      [this, life = registration_.life](const absl::StatusOr<proto::RunReply>& reply) {
        Started(reply, life);
      },
      caf::actor_cast<WorkflowRunActor>(self_));
}

void RunSession::Started(const absl::StatusOr<proto::RunReply>& reply, std::uint64_t life) {
  if (life != registration_.life || !registration_.then) return;
  registration_.under_way = false;
  if (!reply.ok()) return Unregistered();
  const auto on_registered = registration_.then;  // which may register anew
  if (reply->code() != 0) return on_registered(StatusIn(reply));
  registration_.done = registration_.before = true;
  registration_.claim = reply->run().claim();
  on_registered(reply->run());
  if (life == registration_.life) Flush();
}

void RunSession::Add(std::function<void(Done)> send, Done done) {
  Waiting command{std::move(send), std::move(done),
                  std::max(registration_.expiry, Now(self_) + limits_.timeout)};
  if (registration_.done) return Send(std::move(command));
  waiting_.push_back(std::move(command));
  Start();
  Arm();
}

void RunSession::Send(Waiting command) {
  auto send = command.send;
  send([this, generation = generation_,
        command = std::move(command)](const absl::StatusOr<proto::RunReply>& reply) mutable {
    const bool old = generation != generation_;
    if (old || reply.ok() || Now(self_) >= command.give_up) return command.done(reply);
    waiting_.push_back(std::move(command));
    Unregistered();
  });
}

void RunSession::WhenTied(std::function<void(absl::Status)> then) {
  if (registration_.done) return then(absl::OkStatus());
  // A command that is answered by being sent: only to be told when.
  Add([](const Done& answered) { answered(proto::RunReply()); },
      [then = std::move(then)](const absl::StatusOr<proto::RunReply>& reply) { then(reply.status()); });
}

void RunSession::Flush() {
  for (auto& command : std::exchange(waiting_, {})) {
    if (registration_.done) {
      Send(std::move(command));
    } else {
      waiting_.push_back(std::move(command));
    }
  }
}

void RunSession::Unregistered() {
  registration_.done = false;
  registration_.under_way = false;
  Arm();
}

void RunSession::Arm() {
  if (armed_ || !registration_.then) return;
  armed_ = true;
  After(self_, limits_.retry, MakeTick(tick_));
}

void RunSession::OnTick() {
  armed_ = false;
  GiveUp();
  if (!registration_.then || registration_.done) return;
  Start();
  Arm();
}

void RunSession::GiveUp() {
  const auto now = Now(self_);
  std::deque<Waiting> late;
  for (auto& command : std::exchange(waiting_, {}))
    (now >= command.give_up ? late : waiting_).push_back(std::move(command));
  const absl::Status away = absl::UnavailableError("the cluster manager is away: it could not be told");
  const auto generation = generation_;
  for (const auto& command : late) {
    command.done(away);
    if (generation != generation_) return;
  }
  if (registration_.done || registration_.before || !registration_.then || now < registration_.expiry) return;
  const auto on_registered = std::exchange(registration_.then, nullptr);
  on_registered(
      manager_ ? absl::DeadlineExceededError(absl::StrCat("run '", registration_.start.run(),
                                                          "' has not ended within this request's timeout"))
               : absl::UnavailableError("the cluster manager is away: workflow runs wait for it; try again"));
}

void RunSession::Clear() {
  ++registration_.life;
  registration_.then = nullptr;
  Drop();
  manager_ = ClusterManagerActor();
}

}  // namespace troupe::actors
