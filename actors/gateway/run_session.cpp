#include "actors/gateway/run_session.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

void RunSession::Up(ClusterManagerActor manager) {
  manager_ = std::move(manager);
  registered_ = false;
  registering_ = false;
  ++life_;  // what the last one still says of this run is old
  Start();
}

void RunSession::Lost() {
  manager_ = ClusterManagerActor();
  Unregistered();
}

void RunSession::Register(proto::StartRun start, Time expiry, OnRegistered on_registered) {
  start_ = std::move(start);
  expiry_ = expiry;
  on_registered_ = std::move(on_registered);
  was_registered_ = registered_ = registering_ = false;
  ++life_;
  Drop();
  Start();
}

void RunSession::Drop() {
  ++generation_;
  waiting_.clear();
}

void RunSession::Start() {
  if (!on_registered_ || registered_ || registering_) return;
  if (!manager_) return Arm();
  registering_ = true;
  start_.set_resumes(was_registered_);
  // Beside it our own handle, so that a cancellation by an operator comes here at once.
  const auto remaining = was_registered_ ? limits_.timeout : std::max(expiry_ - Now(self_), Duration(1));
  Call<proto::RunReply>(
      self_, calls_, manager_, std::min(limits_.timeout, remaining), start_,
      [this, life = life_](const absl::StatusOr<proto::RunReply>& reply) { Started(reply, life); },
      caf::actor_cast<WorkflowRunActor>(self_));
}

void RunSession::Started(const absl::StatusOr<proto::RunReply>& reply, std::uint64_t life) {
  if (life != life_ || !on_registered_) return;
  registering_ = false;
  if (!reply.ok()) return Unregistered();
  const auto on_registered = on_registered_;  // which may register anew
  if (reply->code() != 0) return on_registered(StatusOf(reply));
  registered_ = was_registered_ = true;
  claim_ = reply->run().claim();
  on_registered(reply->run());
  if (life == life_) Flush();
}

void RunSession::Add(std::function<void(Done)> send, Done done) {
  Waiting command{std::move(send), std::move(done), std::max(expiry_, Now(self_) + limits_.timeout)};
  if (registered_) return Send(std::move(command));
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
  if (registered_) return then(absl::OkStatus());
  // A command that is answered by being sent: only to be told when.
  Add([](const Done& answered) { answered(proto::RunReply()); },
      [then = std::move(then)](const absl::StatusOr<proto::RunReply>& reply) { then(reply.status()); });
}

void RunSession::Flush() {
  for (auto& command : std::exchange(waiting_, {})) {
    if (registered_) {
      Send(std::move(command));
    } else {
      waiting_.push_back(std::move(command));
    }
  }
}

void RunSession::Unregistered() {
  registered_ = false;
  registering_ = false;
  Arm();
}

void RunSession::Arm() {
  if (armed_ || !on_registered_) return;
  armed_ = true;
  After(self_, limits_.retry, MakeTick(tick_));
}

void RunSession::OnTick() {
  armed_ = false;
  GiveUp();
  if (!on_registered_ || registered_) return;
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
  if (registered_ || was_registered_ || !on_registered_ || now < expiry_) return;
  const auto on_registered = std::exchange(on_registered_, nullptr);
  on_registered(
      manager_ ? absl::DeadlineExceededError(
                     absl::StrCat("run '", start_.run(), "' has not ended within this request's timeout"))
               : absl::UnavailableError("the cluster manager is away: workflow runs wait for it; try again"));
}

void RunSession::Clear() {
  ++life_;
  on_registered_ = nullptr;
  Drop();
  manager_ = ClusterManagerActor();
}

}  // namespace troupe::actors
