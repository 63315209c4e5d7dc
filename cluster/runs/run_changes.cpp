#include "cluster/runs/run_changes.hpp"

#include <utility>

#include "cluster/parts.hpp"

namespace troupe::cluster {

absl::Status RunChanges::Add(RunChange change) {
  const auto& run = RunOf(change);
  auto& waiting = changes_[run];
  if (waiting.size() >= limit_) return TooMany(run, "being changed", limit_);
  waiting.push_back(change);
  if (waiting.size() == 1) Begin(change);
  return absl::OkStatus();
}

void RunChanges::Ended(const std::string& run) {
  const auto it = changes_.find(run);
  if (it == changes_.end()) return;
  it->second.pop_front();
  if (it->second.empty()) {
    changes_.erase(it);
    return;
  }
  Begin(RunChange(it->second.front()));  // a copy: the change may end at once
}

void RunChanges::Begin(const RunChange& change) {
  if (const auto* end = std::get_if<EndWish>(&change)) return parts_.runs.Store(*end);
  parts_.claims.Store(std::get<ClaimWish>(change));
}

}  // namespace troupe::cluster
