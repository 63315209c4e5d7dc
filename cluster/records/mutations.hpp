// MUTATIONS: one change of the registries at a time: validate against what is applied, commit, apply, answer.
// A second change waits, so that no two validate against the same past. Bounded. Owned by the cluster
// manager.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/records/changes.hpp"

namespace troupe::cluster {

class Mutations {
 public:
  struct Mutation {
    // What to commit, or why not. Called when its turn has come.
    std::function<absl::StatusOr<Changes>()> prepare;
    std::function<void()> apply;               // after the commit was acknowledged
    std::function<void(absl::Status)> answer;  // exactly once, last
  };
  // How changes are committed: answers later, in the actor.
  using Commit = std::function<void(Changes, std::function<void(absl::Status)>)>;

  explicit Mutations(Commit commit, std::size_t limit = 1024) : commit_(std::move(commit)), limit_(limit) {}

  void Add(Mutation mutation) {
    if (queue_.size() >= limit_)
      return mutation.answer(
          absl::ResourceExhaustedError("too many changes are waiting to be stored; try again"));
    queue_.push_back(std::move(mutation));
    if (!busy_) Begin();
  }
  void Clear() { queue_.clear(); }

 private:
  void Begin() {
    busy_ = true;
    auto changes = queue_.front().prepare();
    if (!changes.ok()) return End(changes.status());
    commit_(std::move(*changes), [this](absl::Status status) {
      if (queue_.empty()) return;  // cleared meanwhile
      if (status.ok()) queue_.front().apply();
      End(std::move(status));
    });
  }
  void End(absl::Status status) {
    auto answer = std::move(queue_.front().answer);
    queue_.pop_front();
    answer(std::move(status));  // may add a mutation: it waits, since this one still counts as busy
    busy_ = false;
    if (!queue_.empty()) Begin();
  }

  Commit commit_;
  const std::size_t limit_;
  std::deque<Mutation> queue_;
  bool busy_ = false;
};

}  // namespace troupe::cluster
