#include "actors/gateway/run_tie.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

void RunTie::Up(ClusterManagerActor manager) {
  manager_ = std::move(manager);
  tied_ = false;
  registering_ = false;
  ++life_;  // what the last one still says of this run is old
  Start();
}

void RunTie::Lost() {
  manager_ = ClusterManagerActor();
  Untied();
}

void RunTie::Register(proto::StartRun start, Time expiry, OnTied on_tied) {
  start_ = std::move(start);
  expiry_ = expiry;
  on_tied_ = std::move(on_tied);
  was_tied_ = tied_ = registering_ = false;
  ++life_;
  Drop();
  Start();
}

void RunTie::Drop() {
  ++generation_;
  waiting_.clear();
}

void RunTie::Start() {
  if (!on_tied_ || tied_ || registering_) return;
  if (!manager_) return Arm();
  registering_ = true;
  start_.set_resumes(was_tied_);
  // Beside it our own handle, so that a cancellation by an operator comes here at once.
  const auto remaining = was_tied_ ? limits_.timeout : std::max(expiry_ - Now(self_), Duration(1));
  Call<proto::RunReply>(
      self_, calls_, manager_, std::min(limits_.timeout, remaining), start_,
      [this, life = life_](const absl::StatusOr<proto::RunReply>& reply) { Started(reply, life); },
      caf::actor_cast<WorkflowRunActor>(self_));
}

void RunTie::Started(const absl::StatusOr<proto::RunReply>& reply, std::uint64_t life) {
  if (life != life_ || !on_tied_) return;
  registering_ = false;
  if (!reply.ok()) return Untied();
  const auto on_tied = on_tied_;  // which may register anew
  if (reply->code() != 0) return on_tied(StatusOf(reply));
  tied_ = was_tied_ = true;
  claim_ = reply->run().claim();
  on_tied(reply->run());
  if (life == life_) Flush();
}

void RunTie::Add(std::function<void(Done)> send, Done done) {
  Waiting command{std::move(send), std::move(done), std::max(expiry_, Now(self_) + limits_.timeout)};
  if (tied_) return Send(std::move(command));
  waiting_.push_back(std::move(command));
  Start();
  Arm();
}

void RunTie::Send(Waiting command) {
  auto send = command.send;
  send([this, generation = generation_,
        command = std::move(command)](const absl::StatusOr<proto::RunReply>& reply) mutable {
    const bool old = generation != generation_;
    if (old || reply.ok() || Now(self_) >= command.give_up) return command.done(reply);
    waiting_.push_back(std::move(command));
    Untied();
  });
}

void RunTie::WhenTied(std::function<void(absl::Status)> then) {
  if (tied_) return then(absl::OkStatus());
  // A command that is answered by being sent: only to be told when.
  Add([](const Done& answered) { answered(proto::RunReply()); },
      [then = std::move(then)](const absl::StatusOr<proto::RunReply>& reply) { then(reply.status()); });
}

void RunTie::Flush() {
  for (auto& command : std::exchange(waiting_, {})) {
    if (tied_) {
      Send(std::move(command));
    } else {
      waiting_.push_back(std::move(command));
    }
  }
}

void RunTie::Untied() {
  tied_ = false;
  registering_ = false;
  Arm();
}

void RunTie::Arm() {
  if (armed_ || !on_tied_) return;
  armed_ = true;
  After(self_, limits_.retry, MakeTick(tick_));
}

void RunTie::OnTick() {
  armed_ = false;
  GiveUp();
  if (!on_tied_ || tied_) return;
  Start();
  Arm();
}

void RunTie::GiveUp() {
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
  if (tied_ || was_tied_ || !on_tied_ || now < expiry_) return;
  const auto on_tied = std::exchange(on_tied_, nullptr);
  on_tied(manager_
              ? absl::DeadlineExceededError(
                    absl::StrCat("run '", start_.run(), "' has not ended within this request's timeout"))
              : absl::UnavailableError("the cluster manager is away: workflow runs wait for it; try again"));
}

void RunTie::Clear() {
  ++life_;
  on_tied_ = nullptr;
  Drop();
  manager_ = ClusterManagerActor();
}

}  // namespace troupe::actors
