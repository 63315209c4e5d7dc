// COMMITS: what is on its way to the store, and what is to be done when it is there, or could not be stored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/outbox.hpp"
#include "cluster/records/changes.hpp"

namespace troupe::cluster {

class Commits {
 public:
  using Done = std::function<void(absl::Status)>;

  explicit Commits(Outbox& out) : out_(out) {}

  void Add(Changes changes, Done done) {
    const auto ticket = ++last_;
    waiting_.emplace(ticket, std::move(done));
    out_.Add(Commit{ticket, std::move(changes)});
  }
  void Add(Changes changes) {
    Add(std::move(changes), [](const absl::Status&) {});
  }
  void On(const Committed& event) {
    if (auto waiting = waiting_.extract(event.ticket); !waiting.empty()) waiting.mapped()(event.status);
  }

 private:
  Outbox& out_;
  std::map<std::uint64_t, Done> waiting_;  // by ticket
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
