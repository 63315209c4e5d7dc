#include "gpu/device/virtual_engine.hpp"

#include <algorithm>
#include <utility>

#include "gpu/device/precise_sleep.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

namespace {
// A wake-up comes this much late as a rule.
constexpr Duration kSpinBefore = std::chrono::microseconds(15);
}  // namespace

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

// In turn, save those whose time has not come. Null when the engine ends.
std::shared_ptr<VirtualOperation> VirtualEngine::NextTurn(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !turns_.empty(); });
    if (turns_.empty()) return nullptr;
    const Time now = SteadyNow();
    const auto ready = std::find_if(turns_.begin(), turns_.end(), [&](const auto& operation) {
      return stopping_ || operation->not_before <= now;
    });
    if (ready != turns_.end()) {
      std::shared_ptr<VirtualOperation> operation = std::move(*ready);
      turns_.erase(ready);
      return operation;
    }
    Time wake = Time::max();
    for (const auto& operation : turns_) wake = std::min(wake, operation->not_before);
    if (wake - now > kSpinBefore) {
      using Steady = std::chrono::steady_clock;
      changed_.wait_until(lock, Steady::time_point((wake - kSpinBefore).time_since_epoch()));
    } else {
      lock.unlock();
      PreciseSleepUntil(wake);
      lock.lock();
    }
  }
}

void VirtualEngine::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::shared_ptr<VirtualOperation> operation = NextTurn(lock);
    if (operation == nullptr) return;
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
  return {active_ > 0 || !turns_.empty() || pretends_busy_, progress_.load(std::memory_order_relaxed),
          busy_time()};
}

}  // namespace troupe::gpu
