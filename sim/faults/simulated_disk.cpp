#include "sim/faults/simulated_disk.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {

void SimulatedDisk::Commit(storage::Batch batch, CommitDone done) {
  if (absl::Status valid = storage::ValidateBatch(batch); !valid.ok()) return done(std::move(valid));
  waiting_.push_back({std::move(batch), std::move(done)});
  slow_ += latency_ > kLatency ? 1 : 0;
  last_ = std::max(last_, events_.now() + latency_);
  if (when_asked_) events_.at(events_.now() + latency_ / 2, std::exchange(when_asked_, nullptr));
  events_.at(last_, [this, life = life_] {
    if (life == life_) CompleteNext();
  });
}

void SimulatedDisk::CompleteNext() {
  const auto [batch, done] = std::move(waiting_.front());
  waiting_.pop_front();
  if (failing_ > 0) {
    --failing_;
    ++failed_;
    if (random_.Below(2) == 0) Keep(batch, false);
    return done(absl::UnavailableError("cannot sync the metadata's log: Input/output error"));
  }
  Keep(batch, true);
  done(absl::OkStatus());
}

void SimulatedDisk::Keep(const storage::Batch& batch, bool acknowledged) {
  events_.written(batch, acknowledged);
  const bool drop =
      planted_.drop && acknowledged && std::ranges::any_of(batch.mutations(), [&](const auto& mutation) {
        return mutation.table == *planted_.drop && mutation.value;
      });
  if (drop) {
    planted_.drop.reset();
    planted_.dropped = true;
    return;
  }
  records_.Commit(batch, [](const absl::Status&) {});
}

bool SimulatedDisk::Crash() {
  ++life_;
  auto waiting = std::exchange(waiting_, {});
  const auto there = waiting.empty() ? 0 : random_.Below(waiting.size() + 1);
  for (std::uint64_t i = 0; i < there; ++i) Keep(waiting[i].batch, false);
  failing_ = 0;
  return there < waiting.size();
}

}  // namespace troupe::sim
