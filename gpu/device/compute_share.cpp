#include "gpu/device/compute_share.hpp"

#include <algorithm>
#include <chrono>

#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/device/precise_sleep.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

namespace {
// A wake-up comes this much late as a rule.
constexpr Duration kSpinBefore = std::chrono::microseconds(15);
// How often a launch that only takes time shows that it lives.
constexpr Duration kSlice = std::chrono::milliseconds(20);
}  // namespace

Duration SharedClock::Read(Time now) const {
  return reading_ + std::max(now - at_, Duration(0)) / Rate();
}

Time SharedClock::When(Duration reading) const {
  return at_ + (reading - reading_) * Rate();
}

void SharedClock::Join(Time now) {
  reading_ = Read(now);
  at_ = std::max(at_, now);
  ++working_;
}

void SharedClock::Leave(Time now) {
  TROUPE_CHECK(working_ > 0, "only a launch that works can stop");
  reading_ = Read(now);
  at_ = std::max(at_, now);
  --working_;
}

ComputeShare::ComputeShare() : clock_(SteadyNow()) {}

void ComputeShare::Began(Time now) {
  const std::lock_guard lock(mutex_);
  if (launches_++ == 0) busy_since_ = now;
}

void ComputeShare::Ended(Time now) {
  const std::lock_guard lock(mutex_);
  if (--launches_ == 0) busy_ += now - busy_since_;
}

Duration ComputeShare::busy_time() const {
  const std::lock_guard lock(mutex_);
  return launches_ > 0 ? busy_ + (SteadyNow() - busy_since_) : busy_;
}

absl::Status ComputeShare::Work(Duration work, VirtualEngine& lane) {
  absl::Status status;
  std::unique_lock lock(mutex_);
  const Time begin = SteadyNow();
  clock_.Join(begin);
  const Duration reading = clock_.Read(begin) + work;
  Time tick = begin + kSlice;
  while (status.ok()) {
    const Time now = SteadyNow();
    if (clock_.Read(now) >= reading) break;
    const Time end = clock_.When(reading);
    if (now >= tick) {
      lock.unlock();
      status = lane.Tick();
      lock.lock();
      tick = now + kSlice;
    } else if (const Time wake = std::min(end - kSpinBefore, tick); wake > now) {
      changed_.wait_until(lock, std::chrono::steady_clock::time_point(wake.time_since_epoch()));
    } else {
      lock.unlock();
      PreciseSleepUntil(end);
      lock.lock();
    }
  }
  clock_.Leave(SteadyNow());
  lock.unlock();
  changed_.notify_all();  // the others are sooner done now
  return status;
}

absl::Status ComputeShare::WorkApart(Duration work, VirtualEngine& lane) {
  const Time end = SteadyNow() + work;
  for (Time now = SteadyNow(); now < end; now = SteadyNow()) {
    TROUPE_RETURN_IF_ERROR(lane.Tick());
    PreciseSleepUntil(std::min(end, now + kSlice));
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu
