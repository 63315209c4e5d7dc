#include "gpu/device/virtual_engine.hpp"

#include <algorithm>
#include <utility>

#include "gpu/device/precise_sleep.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

VirtualEngine::VirtualEngine(std::function<void()> on_thread_start) {
  thread_ = std::thread([this, start = std::move(on_thread_start)] {
    MakeSleepsPrecise();
    if (start) start();
    Serve();
  });
}

VirtualEngine::~VirtualEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool VirtualEngine::Take(const std::shared_ptr<VirtualOperation>& operation) {
  if (operation->small() && ExecuteHere(*operation)) return false;
  {
    const std::lock_guard lock(mutex_);
    turns_.push_back(operation);
  }
  changed_.notify_one();
  return true;
}

bool VirtualEngine::ExecuteHere(VirtualOperation& operation) {
  {
    const std::lock_guard lock(mutex_);
    if (active_ > 0 || !turns_.empty() || frozen_ || stopping_) return false;
    ++active_;
  }
  const bool ended = operation.Turn(*this);
  if (ended) Account(operation.completion);
  const std::lock_guard lock(mutex_);
  --active_;
  return ended;
}

void VirtualEngine::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !turns_.empty(); });
    if (turns_.empty()) return;
    std::shared_ptr<VirtualOperation> operation = std::move(turns_.front());
    turns_.pop_front();
    ++active_;
    lock.unlock();
    const bool ended = operation->Turn(*this);
    if (ended) {
      Account(operation->completion);
      lock.lock();
      --active_;  // before anybody is told: an engine that has ended its last operation is idle
      lock.unlock();
      operation->ended();
      operation.reset();
      lock.lock();
    } else {
      lock.lock();
      --active_;
      turns_.push_back(std::move(operation));
    }
  }
}

void VirtualEngine::Account(const Completion& completion) {
  busy_ns_.fetch_add((completion.end - completion.begin).count(), std::memory_order_relaxed);
}

absl::Status VirtualEngine::Tick() {
  progress_.fetch_add(1, std::memory_order_relaxed);
  if (frozen_) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_.load(); });
  }
  return stopping_ ? absl::CancelledError("the device is closing") : absl::OkStatus();
}

absl::Status VirtualEngine::SleepUntil(Time when) {
  constexpr Duration kSlice = std::chrono::milliseconds(20);
  for (Time now = SteadyNow(); when - now > kSlice; now = SteadyNow()) {
    PreciseSleepUntil(now + kSlice);
    if (absl::Status status = Tick(); !status.ok()) return status;
  }
  PreciseSleepUntil(when);
  return absl::OkStatus();
}

void VirtualEngine::Freeze(bool busy) {
  const std::lock_guard lock(mutex_);
  frozen_ = true;
  pretends_busy_ |= busy;
}

EngineState VirtualEngine::state() const {
  const std::lock_guard lock(mutex_);
  return {active_ > 0 || !turns_.empty() || pretends_busy_, progress_.load(std::memory_order_relaxed)};
}

}  // namespace troupe::gpu
