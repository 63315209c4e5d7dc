// LAUNCH GATE: before each launch, and between the groups of a launch, says whether it is its function's turn
// on the GPU, and on which SMs (TokenScheduler).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/sharing/gate_page.hpp"
#include "gpu/sharing/gpu_time.hpp"
#include "gpu/sharing/token_scheduler.hpp"
#include "gpu/worker/run.hpp"
#include "gpu/worker/task_queue.hpp"

namespace troupe::gpu {

//   Join -> Begin -> computes <-> paused (its function's window is used up) -> Ended -> Leave
// A launch asks on a thread of the device, everything else is the main loop's thread's.
class LaunchGate {
 public:
  // `page`: what the GPU's workers have taken; null: there is no other. `changed`: called on the main loop's
  // thread when a launch has paused: others have room.
  LaunchGate(const SharingOptions& options, ShareLadder ladder, std::shared_ptr<GatePage> page,
             TaskQueue& queue, std::function<void()> changed);

  void Join(const Run& run);
  void Leave(const Run& run);
  [[nodiscard]] bool MayBegin(const Run& run, Time now) const;
  [[nodiscard]] bool HasTime(const Run& run, Time now) const;
  [[nodiscard]] TokenScheduler::Rank RankOf(const Run& run, Time now) const;
  [[nodiscard]] bool RanksEqual() const;
  // Fills in where the run computes, and how its launch asks; false while there is no room for it.
  [[nodiscard]] bool Begin(Run& run);
  // Lets paused launches go on, those first whose functions lack most. False while one that has time finds no
  // room: no run may begin before it.
  bool Resume(Time now);
  // The launch has ended, after it computed for so long, or was not put on its stream after all: its SMs are free. How
  // much of the GPU's time it had (GpuTime), which its function is charged.
  [[nodiscard]] Duration Ended(Run& run, Duration computed);
  // How long no run of the same function may begin, since its window is used up; zero: one may.
  [[nodiscard]] Duration PauseAfter(const Run& run, Time now) const;
  // What a run takes of the SMs, in percent, as far as others can compute beside it on as many streams.
  [[nodiscard]] std::uint32_t PercentOf(const Run& run, std::size_t streams) const;
  // What could begin has begun. `some_wait`: a run that is ready waits for its function's next window.
  void Settled(bool some_wait, Time now);
  // When a window begins that something waits for; Time::max(): nothing waits.
  [[nodiscard]] Time next_turn() const { return next_turn_; }
  // Launches that pause end with an error.
  void Close();

  [[nodiscard]] const SharingPolicy& policy() const { return options_.policy; }
  [[nodiscard]] std::uint32_t concurrency() const { return options_.concurrency; }

 private:
  // Takes what `take` takes of what other workers leave; false: there is no room, now.
  template <typename Take, typename Undo>
  bool TakeRoom(const Take& take, const Undo& undo);
  void Freed();
  // Runs with a share divide their SMs with no other run.
  void Computes(Turns& turns);
  void Stops(Turns& turns);
  EventPtr Ask(const std::shared_ptr<Turns>& turns, Duration used);

  // A launch asks after this part of a window.
  static constexpr int kGroupsOfWindow = 100;
  // How soon it looks again at what other workers have taken.
  static constexpr Duration kLook = std::chrono::milliseconds(1);
  const SharingOptions options_;
  TaskQueue& queue_;
  const std::function<void()> changed_;
  Time next_turn_ = Time::max();
  // The main loop's thread's: since the last Settled, something found no room beside what other workers had.
  bool others_bar_ = false;
  mutable std::mutex mutex_;
  // mutex_ guards these.
  std::shared_ptr<GatePage> page_;
  TokenScheduler tokens_;
  GpuTime time_;
  std::vector<std::shared_ptr<Turns>> paused_;
  bool closed_ = false;
};

}  // namespace troupe::gpu
