#include "actors/node/worker_orders.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"

namespace troupe::actors {

proto::WorkerOutcome Refusal(std::uint64_t sequence, const absl::Status& status) {
  proto::WorkerOutcome outcome;
  outcome.set_sequence(sequence);
  SetStatus(status, outcome);
  return outcome;
}

void WorkerOrders::Add(const proto::WorkerOrder& order, Promise promise) {
  const auto sequence = order.sequence();
  if (!HasOutcome(order)) {
    order.has_cancel() ? Cancel(order) : Forward(order);
    promise.deliver(Refusal(sequence, absl::OkStatus()));
    return;
  }
  if (!open_.try_emplace(sequence, promise).second) {
    promise.deliver(
        Refusal(sequence, absl::InvalidArgumentError("an order with this sequence is under way")));
    return;
  }
  Forward(order);
}

void WorkerOrders::Cancel(const proto::WorkerOrder& order) {
  const auto target = order.cancel().target();
  const auto waiting = std::find_if(backlog_.begin(), backlog_.end(),
                                    [target](const auto& queued) { return queued.sequence() == target; });
  if (waiting != backlog_.end()) {
    backlog_.erase(waiting);
    Answer(Refusal(target, absl::CancelledError("cancelled before it began")));
  } else if (open_.contains(target)) {
    Forward(order);
  }
}

void WorkerOrders::Forward(const proto::WorkerOrder& order) {
  if (!backlog_.empty()) return Queue(order);
  const auto status = link_.Send(order);
  if (status.ok()) return;
  if (absl::IsResourceExhausted(status)) return Queue(order);
  Answer(Refusal(order.sequence(), status));
}

void WorkerOrders::Queue(const proto::WorkerOrder& order) {
  // An order that gives something back always waits: a model that is not unpinned, or outputs that are not
  // released, would hold their memory for ever. Each such order follows a swap or a run, so their number is
  // bounded too.
  if (backlog_.size() < most_ || !HasOutcome(order)) return backlog_.push_back(order);
  Answer(Refusal(order.sequence(),
                 absl::ResourceExhaustedError(absl::StrCat(most_, " orders already wait for ", label_))));
}

void WorkerOrders::Drain() {
  while (!backlog_.empty()) {
    const auto status = link_.Send(backlog_.front());
    if (absl::IsResourceExhausted(status)) return;
    const auto sequence = backlog_.front().sequence();
    backlog_.pop_front();
    if (!status.ok()) Answer(Refusal(sequence, status));
  }
}

void WorkerOrders::Answered(proto::WorkerOutcome outcome) {
  Drain();
  Answer(std::move(outcome));
}

void WorkerOrders::Answer(proto::WorkerOutcome outcome) {
  const auto it = open_.find(outcome.sequence());
  if (it == open_.end()) return;
  auto promise = std::move(it->second);
  open_.erase(it);
  promise.deliver(std::move(outcome));
}

void WorkerOrders::FailAll(const absl::Status& status) {
  backlog_.clear();
  for (auto& [sequence, promise] : std::exchange(open_, {})) promise.deliver(Refusal(sequence, status));
}

void WorkerOrders::Clear() {
  backlog_.clear();
  open_.clear();
}

}  // namespace troupe::actors
