// RUN LINKS: which actor runs which run under way, so that a cancellation reaches it at once; which of them
// have none any more; who waits for the end of one that another runs; and whose turn it is to change a run's
// record: an operator's cancellation, the run's own end and a claim for another gateway must not overwrite
// each other in the store. Owned by the cluster manager.
//
//   a run:  linked -> loose     its actor or its gateway is gone
//           loose -> linked     another actor goes on with it
//           linked -> ended
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/typed_response_promise.hpp>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "actors/interfaces/workflow_run.hpp"
#include "base/units.hpp"
#include "proto/workflow.pb.h"

namespace troupe::actors {

class RunLinks {
 public:
  using Promise = caf::typed_response_promise<proto::RunReply>;
  // A run without an owner: since when, and the gateway that is to go on with it, once it was claimed for
  // that; and the actor that had it last, as long as that lives.
  struct Loose {
    Time since{};
    std::string next{};
    bool claimed = false;
    WorkflowRunActor last{};
  };

  explicit RunLinks(std::size_t limit = 16) : limit_(limit) {}

  void Add(const std::string& run, const WorkflowRunActor& actor) {
    actors_[run] = actor;
    loose_.erase(run);
  }
  // Empty handle: not connected, or ended.
  [[nodiscard]] WorkflowRunActor Find(const std::string& run) const {
    const auto it = actors_.find(run);
    return it == actors_.end() ? WorkflowRunActor() : it->second;
  }
  // It has no owner since `now`, or `next` is to go on with it since then.
  void Loosen(const std::string& run, Time now, const std::string& next = {}) {
    auto last = Find(run);
    actors_.erase(run);
    auto& loose = loose_[run];
    loose = {now, next, false, last ? last : loose.last};
  }
  // `actor` is to have it once its claim is stored: until then who had it before is remembered.
  void Pledge(const std::string& run, const WorkflowRunActor& actor) {
    formers_[run] = Former(run);
    Add(run, actor);
  }
  // The claim is stored. Who had it before; an empty handle when that one is gone.
  WorkflowRunActor Redeem(const std::string& run) {
    const auto former = formers_.extract(run);
    return former.empty() ? WorkflowRunActor() : former.mapped();
  }
  // The claim was not stored: who had it before is who had it last.
  void GiveBack(const std::string& run, Time now) {
    actors_.erase(run);
    loose_[run] = {now, {}, false, Redeem(run)};
  }
  // The last owner has it again, for it lives and the run was not claimed meanwhile.
  void Relink(const std::string& run) {
    if (auto last = Former(run)) Add(run, last);
  }
  // The last owner; an empty handle when the run has an owner, or the last one is gone.
  [[nodiscard]] WorkflowRunActor Former(const std::string& run) const {
    const auto it = loose_.find(run);
    return it == loose_.end() ? WorkflowRunActor() : it->second.last;
  }
  // For `next`; false when the run has an owner already.
  bool Claimed(const std::string& run) {
    const auto it = loose_.find(run);
    if (it == loose_.end()) return false;
    it->second.claimed = true;
    return true;
  }
  // An actor that is gone; answers what it ran.
  std::vector<std::string> Remove(const caf::actor_addr& address) {
    for (auto& [run, waiting] : waiting_) waiting.erase(address);
    std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
    for (auto& [run, loose] : loose_)
      if (Is(loose.last, address)) loose.last = WorkflowRunActor();
    std::erase_if(formers_, [&](const auto& entry) { return Is(entry.second, address); });
    std::vector<std::string> runs;
    std::erase_if(actors_, [&](const auto& entry) {
      if (!Is(entry.second, address)) return false;
      runs.push_back(entry.first);
      return true;
    });
    return runs;
  }
  [[nodiscard]] const std::map<std::string, Loose>& loose() const { return loose_; }

  // `asker` hears when the run has ended. ResourceExhausted when `limit` wait for it already.
  absl::Status Await(const std::string& run, const caf::actor_addr& asker, const Promise& promise) {
    auto& waiting = waiting_[run];
    if (waiting.size() >= limit_ && !waiting.contains(asker)) return TooMany(run, "waited for");
    waiting[asker] = promise;
    return absl::OkStatus();
  }
  // The run is over, or was never begun: its waiting callers are to be answered.
  [[nodiscard]] std::vector<Promise> End(const std::string& run) {
    actors_.erase(run);
    loose_.erase(run);
    formers_.erase(run);
    std::vector<Promise> promises;
    const auto waiting = waiting_.extract(run);
    if (waiting.empty()) return promises;
    for (const auto& [asker, promise] : waiting.mapped()) promises.push_back(promise);
    return promises;
  }

  // Calls `begin` when no other change of this run's record is being stored: now, or after their TurnOver.
  // ResourceExhausted when `limit` wait already.
  absl::Status TakeTurn(const std::string& run, std::function<void()> begin) {
    auto& waiting = turns_[run];
    if (waiting.size() >= limit_) return TooMany(run, "being changed");
    waiting.push_back(begin);
    if (waiting.size() == 1) begin();
    return absl::OkStatus();
  }
  // By each `begin`, once: stored or not, the next may look.
  void TurnOver(const std::string& run) {
    const auto it = turns_.find(run);
    if (it == turns_.end()) return;  // cleared meanwhile
    it->second.pop_front();
    if (it->second.empty()) {
      turns_.erase(it);
      return;
    }
    const auto next = it->second.front();
    next();
  }
  void Clear() {
    actors_.clear();
    loose_.clear();
    formers_.clear();
    waiting_.clear();
    turns_.clear();
  }

 private:
  [[nodiscard]] static bool Is(const WorkflowRunActor& actor, const caf::actor_addr& address) {
    return actor && caf::actor_cast<caf::actor_addr>(actor) == address;
  }
  [[nodiscard]] absl::Status TooMany(const std::string& run, const std::string& what) const {
    return absl::ResourceExhaustedError(
        absl::StrCat("run '", run, "' is ", what, " ", limit_, " times already; try again later"));
  }

  const std::size_t limit_;
  std::map<std::string, WorkflowRunActor> actors_;
  std::map<std::string, Loose> loose_;
  std::map<std::string, WorkflowRunActor> formers_;  // of runs whose claim is being stored
  // By the waiters' addresses: two processes number their actors alike.
  std::map<std::string, std::map<caf::actor_addr, Promise>> waiting_;
  std::map<std::string, std::deque<std::function<void()>>> turns_;  // the first is being stored
};

}  // namespace troupe::actors
