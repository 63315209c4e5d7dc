// RUN LINKS: where the runs under way are, so that a cancellation reaches them at once, and whose turn it is
// to end one: an operator's cancellation and the run's own end must not both be stored. Owned by the cluster
// manager.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "actors/interfaces/workflow_run.hpp"

namespace troupe::actors {

class RunLinks {
 public:
  explicit RunLinks(std::size_t limit = 16) : limit_(limit) {}

  void Add(const std::string& run, const WorkflowRunActor& actor) { actors_[run] = actor; }
  // Empty handle: not connected, or ended.
  [[nodiscard]] WorkflowRunActor Find(const std::string& run) const {
    const auto it = actors_.find(run);
    return it == actors_.end() ? WorkflowRunActor() : it->second;
  }
  void Forget(const std::string& run) { actors_.erase(run); }
  // An actor that is gone.
  void Remove(const caf::actor_addr& address) {
    std::erase_if(actors_, [&](const auto& entry) {
      return caf::actor_cast<caf::actor_addr>(entry.second) == address;
    });
  }

  // Calls `begin` when no other end of this run is being stored: now, or after their EndSettled.
  // ResourceExhausted when `limit` wait already.
  absl::Status BeginEnd(const std::string& run, std::function<void()> begin) {
    auto& waiting = ends_[run];
    if (waiting.size() >= limit_)
      return absl::ResourceExhaustedError(
          absl::StrCat("run '", run, "' is being ended ", limit_, " times already"));
    waiting.push_back(begin);
    if (waiting.size() == 1) begin();
    return absl::OkStatus();
  }
  // By each `begin`, once: stored or not, the next may look.
  void EndSettled(const std::string& run) {
    const auto it = ends_.find(run);
    if (it == ends_.end()) return;  // cleared meanwhile
    it->second.pop_front();
    if (it->second.empty()) {
      ends_.erase(it);
      return;
    }
    const auto next = it->second.front();
    next();
  }
  void Clear() {
    actors_.clear();
    ends_.clear();
  }

 private:
  const std::size_t limit_;
  std::map<std::string, WorkflowRunActor> actors_;
  std::map<std::string, std::deque<std::function<void()>>> ends_;  // the first is being stored
};

}  // namespace troupe::actors
