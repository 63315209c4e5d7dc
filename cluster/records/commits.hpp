// COMMITS: what is on its way to the store, and what its parts have to do when the store has answered.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "cluster/events.hpp"
#include "cluster/outbox.hpp"
#include "cluster/records/after_commit.hpp"
#include "cluster/records/changes.hpp"

namespace troupe::cluster {

class Commits {
 public:
  explicit Commits(Outbox& out) : out_(out) {}

  void Add(Changes changes, AfterCommit then = {}) {
    const auto ticket = ++last_;
    waiting_.emplace(ticket, std::move(then));
    out_.Add(Commit{ticket, std::move(changes)});
  }
  // What waited for this commit: nothing when the ticket is not known.
  [[nodiscard]] AfterCommit Take(std::uint64_t ticket) {
    auto waiting = waiting_.extract(ticket);
    return waiting.empty() ? AfterCommit() : std::move(waiting.mapped());
  }

 private:
  Outbox& out_;
  std::map<std::uint64_t, AfterCommit> waiting_;  // by ticket
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
