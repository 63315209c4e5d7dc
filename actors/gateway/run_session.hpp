// RUN SESSION: one workflow run's session with the cluster manager. It registers the run (StartRun, with the run's own
// handle) with each manager that comes, brings commands to it under the claim that the manager gave, and
// keeps them while no manager is there. Owned by one workflow run, in whose thread everything happens; none
// of its callbacks is called after Clear.
//
//   unregistered -> registering -> registered -> unregistered (the manager went away, or a call to it failed)
//
// Only a call that failed on its way is made again; the manager's answer, also a refusal, is handed on.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "actors/core/call.hpp"
#include "actors/gateway/run_tensors.hpp"
#include "actors/interfaces/cluster_manager.hpp"

namespace troupe::actors {

// The workflow has no longer the version with which the run was begun.
[[nodiscard]] absl::Status VersionGone(const std::string& run, const std::string& version);

class RunSession {
 public:
  struct Limits {
    Duration timeout;    // of one question; a command is kept at least so long
    bool logged = true;  // false: no manager knows the run, and whatever it would be told is as good as told
    Duration retry = std::chrono::milliseconds(200);
  };
  using Done = std::function<void(const absl::StatusOr<proto::RunReply>&)>;
  // Each registration: the run as the log knows it; or why it is not registered, and will not be. Aborted:
  // it was, and another has the run now.
  using OnRegistered = std::function<void(absl::StatusOr<proto::RunRecord>)>;

  // `self` owns it, calls OnTick for each Tick of kind `tick`, and outlives it.
  RunSession(RunSelf::pointer self, PendingCalls& calls, std::uint32_t tick, Limits limits)
      : self_(self), calls_(calls), tick_(tick), limits_(limits) {}

  // The manager is there, or gone.
  void Up(ClusterManagerActor manager);
  void Lost();
  // From now on the run is registered with each manager that comes. A first registration is given up at
  // `expiry` (Unavailable, or DeadlineExceeded when another gateway had the run until then).
  void Register(proto::StartRun start, Time expiry, OnRegistered on_registered);
  // A CommitStep or FinishRun. Unavailable when no manager took it until the run's expiry, and for `timeout`
  // at least.
  template <class Command>
  void Tell(Command command, Done done) {
    if (!limits_.logged) return done(proto::RunReply());
    Add(
        [this, command = std::move(command)](Done answered) mutable {
          command.set_claim(registration_.claim);
          Call<proto::RunReply>(self_, calls_, manager_, limits_.timeout, command, std::move(answered));
        },
        std::move(done));
  }
  // At once when it is registered, else after the next registration, or with Unavailable.
  void WhenTied(std::function<void(absl::Status)> then);
  // Whatever was to be told so far is not to be told any more.
  void Drop();
  void OnTick();
  void Clear();
  [[nodiscard]] bool registered() const { return registration_.done; }

 private:
  // What is to be registered, and how far that has come.
  struct Registration {
    proto::StartRun start;
    Time expiry{};
    OnRegistered then;    // empty: nothing is to be registered
    bool before = false;  // it was, with a manager that may have gone
    bool done = false;
    bool under_way = false;
    std::uint64_t life = 0;  // answers to an earlier one are dropped
    std::uint64_t claim = 0;
  };
  struct Waiting {
    std::function<void(Done)> send;
    Done done;
    Time give_up{};
  };
  void Add(std::function<void(Done)> send, Done done);
  void Send(Waiting command);
  void Start();
  void Started(const absl::StatusOr<proto::RunReply>& reply, std::uint64_t life);
  void Flush();
  void Unregistered();
  void Arm();
  void GiveUp();

  const RunSelf::pointer self_;
  PendingCalls& calls_;
  const std::uint32_t tick_;
  const Limits limits_;
  ClusterManagerActor manager_;
  Registration registration_;
  bool armed_ = false;
  std::uint64_t generation_ = 0;  // commands of an earlier one are not sent again
  std::deque<Waiting> waiting_;
};

}  // namespace troupe::actors
