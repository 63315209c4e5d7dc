// WORKER ORDERS: the orders of one worker that are not answered yet. Orders for which the worker's ring has no room
// wait behind those that the worker has.
#pragma once

#include <caf/typed_response_promise.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "actors/seams/worker_link.hpp"
#include "proto/worker.pb.h"

namespace troupe::actors {

// What an order answers that no worker has carried out.
[[nodiscard]] proto::WorkerOutcome Refusal(std::uint64_t sequence, const absl::Status& status);

// Touched by the executor only. Every order is answered once.
class WorkerOrders {
 public:
  using Promise = caf::typed_response_promise<proto::WorkerOutcome>;

  // `most`: orders that wait for room. `label` names the worker's GPU to people. The link outlives all calls.
  WorkerOrders(WorkerLink& link, std::string label, std::size_t most)
      : link_(link), label_(std::move(label)), most_(most) {}

  // Sends an order, or has it wait. Orders that no worker answers are answered at once.
  void Add(const proto::WorkerOrder& order, Promise promise);
  // The worker has answered, and thus has room.
  void Answered(proto::WorkerOutcome outcome);
  // Sends what waits, as far as there is room.
  void Drain();
  // The worker is gone, and what it was given with it.
  void FailAll(const absl::Status& status);
  // Drops everything without an answer.
  void Clear();

 private:
  void Cancel(const proto::WorkerOrder& order);
  void Forward(const proto::WorkerOrder& order);
  void Queue(const proto::WorkerOrder& order);
  void Answer(proto::WorkerOutcome outcome);

  WorkerLink& link_;
  const std::string label_;
  const std::size_t most_;
  std::map<std::uint64_t, Promise> open_;  // by sequence
  std::deque<proto::WorkerOrder> backlog_;
};

}  // namespace troupe::actors
