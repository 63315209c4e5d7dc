#include "gpu/device/virtual_stream.hpp"

#include <utility>

#include "base/check.hpp"
#include "gpu/device/virtual_plan.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

// What a stream can do now: nothing, wait for an event, fail an operation, or start it.
struct StreamState::Next {
  std::shared_ptr<VirtualOperation> operation;
  std::shared_ptr<VirtualEvent> pending;
  absl::Status failed;
};

EventPtr StreamState::Push(std::shared_ptr<VirtualOperation> operation, VirtualEngine& engine) {
  EventPtr event = operation->event;
  operation->engine = &engine;
  operation->pushed = transport::SteadyNow();
  operation->ended = [state = shared_from_this(), raw = operation.get()] {
    state->Finish(*raw);
    state->Advance();
  };
  {
    const std::lock_guard lock(mutex_);
    operation->waits = std::exchange(waits_, {});
    operations_.push_back(std::move(operation));
  }
  Advance();
  return event;
}

void StreamState::Wait(std::shared_ptr<VirtualEvent> event) {
  const std::lock_guard lock(mutex_);
  waits_.push_back(std::move(event));
}

void StreamState::Drain() {
  std::unique_lock lock(mutex_);
  empty_.wait(lock, [this] { return operations_.empty(); });
}

StreamState::Next StreamState::TakeNext() {
  const std::lock_guard lock(mutex_);
  Next next;
  if (operations_.empty() || operations_.front()->started) return next;
  auto& waits = operations_.front()->waits;
  for (auto& event : waits) {
    if (!event->done()) {
      next.pending = event;
      return next;
    }
    if (next.failed.ok()) next.failed = event->status();
  }
  waits.clear();
  next.operation = operations_.front();
  next.operation->started = true;
  return next;
}

void StreamState::Advance() {
  for (;;) {
    const Next next = TakeNext();
    if (next.pending) {
      next.pending->Then([state = shared_from_this()] { state->Advance(); });
      return;
    }
    if (!next.operation) return;
    if (!next.failed.ok()) {
      const Time now = transport::SteadyNow();
      next.operation->completion = {next.failed, now, now};
    } else if (next.operation->engine->Take(next.operation)) {
      return;
    }
    Finish(*next.operation);
  }
}

void StreamState::Finish(VirtualOperation& operation) {
  operation.event->Complete(operation.completion.status);
  operation.Report();
  std::shared_ptr<VirtualOperation> gone;  // destroyed after the lock: it may own what is large
  const std::lock_guard lock(mutex_);
  gone = std::move(operations_.front());
  operations_.pop_front();
  if (operations_.empty()) empty_.notify_all();
}

EventPtr VirtualStream::CopyIn(DeviceRange to, std::span<const std::byte> from, OnComplete done) {
  TROUPE_CHECK(to.size.count() >= from.size(), "a copy to the device does not fit its destination");
  return state_->Push(factory_.copy_in(to, from, std::move(done)), *factory_.in);
}

EventPtr VirtualStream::CopyOut(std::span<std::byte> to, DeviceRange from, OnComplete done) {
  TROUPE_CHECK(to.size() <= from.size.count(), "a copy from the device is longer than its source");
  return state_->Push(factory_.copy_out(to, from, std::move(done)), *factory_.out);
}

EventPtr VirtualStream::CopyWithin(DeviceRange to, DeviceRange from, OnComplete done) {
  TROUPE_CHECK(to.size >= from.size, "a copy within the device does not fit its destination");
  return state_->Push(factory_.copy_within(to, from, std::move(done)), *factory_.in);
}

EventPtr VirtualStream::CopyPeer(DeviceRange to, std::shared_ptr<const PeerMemory> from, Bytes offset,
                                 OnComplete done) {
  TROUPE_CHECK(offset <= from->size() && to.size <= from->size() - offset,
               "a copy from another GPU leaves its source");
  return state_->Push(factory_.copy_peer(to, from, offset, std::move(done)), *factory_.peer);
}

EventPtr VirtualStream::Launch(std::shared_ptr<DevicePlan> plan, LaunchArguments arguments, OnLaunched done) {
  auto ours = std::dynamic_pointer_cast<VirtualPlan>(plan);
  TROUPE_CHECK(ours != nullptr, "a plan was launched on a device that did not prepare it");
  return state_->Push(
      MakeLaunch(std::move(ours), std::move(arguments), factory_.compute->share(), std::move(done)), Lane());
}

// Streams that only copy take no lane.
VirtualEngine& VirtualStream::Lane() {
  std::call_once(launched_, [this] { lane_ = &factory_.compute->Assign(); });
  return *lane_;
}

EngineState VirtualStream::launches() const {
  const VirtualEngine* lane = lane_;
  return lane == nullptr ? EngineState() : lane->state();
}

void VirtualStream::Wait(EventPtr event) {
  auto ours = std::dynamic_pointer_cast<VirtualEvent>(event);
  TROUPE_CHECK(ours != nullptr, "a stream was told to wait for another device's event");
  state_->Wait(std::move(ours));
}

}  // namespace troupe::gpu
