// One engine of the virtual GPU: a thread that gives the operations put to it their turns.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/device/virtual_event.hpp"

namespace troupe::gpu {

class VirtualEngine;

// One operation of a stream on its way through an engine.
//   queued on its stream -> at its engine (turns) -> ended (event complete, callback called)
class VirtualOperation {
 public:
  virtual ~VirtualOperation() = default;
  // One turn at the engine: some blocks of a copy, a whole launch. True when the operation has ended; then
  // `completion` is filled in. Else it has the next turn at `not_before`, the engine serving others
  // meanwhile.
  virtual bool Turn(VirtualEngine& engine) = 0;
  // So short that a hand-over to the engine's thread would cost more: it may run on the submitting thread.
  [[nodiscard]] virtual bool small() const { return false; }
  // Calls the user's callback with `completion`.
  virtual void Report() = 0;

  std::shared_ptr<VirtualEvent> event = std::make_shared<VirtualEvent>();
  std::vector<std::shared_ptr<VirtualEvent>> waits;  // that must be done before it starts
  VirtualEngine* engine = nullptr;
  Completion completion;
  Time pushed;                  // onto its stream
  Time not_before;              // of its next turn
  bool started = false;         // guarded by its stream's mutex
  std::function<void()> ended;  // the stream's continuation
};

// Operations of different streams take turns (round robin), so that a short copy does not wait for a long
// one. Owner: the device. The thread starts with the engine and is joined by the destructor, which cancels
// what is left.
class VirtualEngine {
 public:
  explicit VirtualEngine(std::function<void()> on_thread_start);
  ~VirtualEngine();

  // False: the operation took so little that it has been executed here and now; the caller completes it.
  bool Take(const std::shared_ptr<VirtualOperation>& operation);

  // For operations, while they have their turn: counts progress and, once Freeze was called, never returns
  // while the engine lives. Cancelled when the engine ends.
  absl::Status Tick();
  // Precise sleep that ends early, Cancelled, when the engine does. Long ones count as progress.
  absl::Status SleepUntil(Time when);
  [[nodiscard]] bool stopping() const { return stopping_; }

  // A fault: no operation ends any more. `busy` makes even an idle engine look busy.
  void Freeze(bool busy);
  [[nodiscard]] EngineState state() const;
  [[nodiscard]] Duration busy_time() const { return Duration(busy_ns_.load(std::memory_order_relaxed)); }

 private:
  void Serve();
  std::shared_ptr<VirtualOperation> NextTurn(std::unique_lock<std::mutex>& lock);
  bool ExecuteHere(VirtualOperation& operation);
  void Account(const Completion& completion);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<VirtualOperation>> turns_;  // guarded by mutex_
  int active_ = 0;                                       // guarded by mutex_; operations in a turn
  bool pretends_busy_ = false;                           // guarded by mutex_
  std::atomic<bool> frozen_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> progress_ = 0;
  std::atomic<std::int64_t> busy_ns_ = 0;
  std::thread thread_;
};

}  // namespace troupe::gpu
