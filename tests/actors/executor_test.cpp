// An executor whose worker's ring is full.
#include "actors/node/executor.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "actors/interfaces/message_types.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::seconds;

// What a test sets about the link, and what it sees of it.
struct Ring {
  bool full = false;
  bool busy = false;
  std::uint64_t counter = 0;  // grows with each look at the worker
  std::vector<proto::WorkerOrder> orders;
};

// A worker that is there and answers nothing.
class SilentLink final : public WorkerLink {
 public:
  explicit SilentLink(std::shared_ptr<Ring> ring) : ring_(std::move(ring)) {}
  void Bind(Events events) override { events_ = std::move(events); }
  void Serve(const std::string&) override {}
  bool Listens() override { return true; }
  void Spawn(std::uint64_t) override {}
  void Adopt(std::uint64_t incarnation) override {
    proto::WorkerReady ready;
    ready.set_incarnation(incarnation);
    ready.set_same_worker(true);
    events_.on_ready(std::move(ready));
  }
  absl::Status Send(const proto::WorkerOrder& order) override {
    if (ring_->full) return absl::ResourceExhaustedError("the worker's order ring is full");
    ring_->orders.push_back(order);
    return absl::OkStatus();
  }
  // Always computing, and getting on.
  [[nodiscard]] WorkerProgress Progress() const override {
    WorkerProgress progress;
    progress.busy = ring_->busy;
    progress.counter = ++ring_->counter;
    return progress;
  }
  void Kill() override {}
  void ShutDown() override {}

 private:
  std::shared_ptr<Ring> ring_;
  Events events_;
};

proto::WorkerOrder ReleaseOf(std::uint64_t sequence) {
  proto::WorkerOrder order;
  order.set_sequence(sequence);
  order.mutable_release()->add_slices();
  return order;
}

TEST(Executor, WhatGivesBackWaitsForAFullRingHoweverMuchWaits) {
  World world(0);
  auto ring = std::make_shared<Ring>();
  ExecutorLimits limits;
  limits.backlog = 2;
  const auto executor = SpawnExecutor(world.system(), 0, "GPU 0", std::make_unique<SilentLink>(ring),
                                      ExecutorListener(), limits);
  world.Settle();
  ring->full = true;
  for (std::uint64_t sequence = 1; sequence <= 5; ++sequence)
    caf::anon_send(caf::actor_cast<caf::actor>(executor), ReleaseOf(sequence));
  world.Settle();
  EXPECT_TRUE(ring->orders.empty());
  ring->full = false;
  world.Run(limits.watch_every);
  ASSERT_EQ(ring->orders.size(), 5U) << "no outcome is due, so the next look at the worker sends the orders";
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(ring->orders[i].sequence(), i + 1);
}

// Each look at it puts off when it would count as hung.
TEST(Executor, AWorkerThatIsAlwaysBusyDoesNotMakeTimersAddUp) {
  World world(0);
  auto ring = std::make_shared<Ring>();
  ring->busy = true;
  const auto executor = SpawnExecutor(world.system(), 0, "GPU 0", std::make_unique<SilentLink>(ring),
                                      ExecutorListener(), ExecutorLimits());
  world.Run(seconds(30));
  const auto timers = world.scheduler().clock().schedule().size();
  world.Run(seconds(300));
  EXPECT_LE(world.scheduler().clock().schedule().size(), timers + 2);
}

}  // namespace
}  // namespace troupe::actors
