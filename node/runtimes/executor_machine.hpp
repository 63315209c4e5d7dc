// EXECUTOR MACHINE: supervises one GPU worker. Pure transitions: events in, actions out; the executor actor
// owns it and does the spawning, connecting and killing.
//
//   ready -> adopting | hung -> starting                             Reassign
//   absent -> starting -> adopting -> ready -> hung -> backoff -> starting ...
//   starting, adopting, ready -> backoff   the worker exited, or did not come up or answer in time (killed
//   first) any -> unfit                           it exited with a code that says that a restart will not
//   help, or its device is told to be of no use any -> stopping -> absent              Stop
//
// A GPU whose worker does not come up three times in a row, or does not listen in time, is told to be unfit, and its worker is
// started again all the same: the GPU is fit when a worker is ready.
//
// Back-off doubles from `first_backoff` to `longest_backoff` and starts anew after `healthy_after` in ready. A
// worker that was ready and had no back-off is started again at once: the next one that dies soon waits.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/units.hpp"

namespace troupe::node {

enum class ExecutorState { kAbsent, kStarting, kAdopting, kReady, kHung, kBackoff, kUnfit, kStopping };
[[nodiscard]] const char* Name(ExecutorState state);

// Exit codes of troupe-gpu-worker (gpu/worker/exit_codes.hpp) that mean that starting it again is useless.
inline constexpr int kWorkerExitUsage = 2;     // what it was told makes no sense
inline constexpr int kWorkerExitNoDevice = 4;  // there is no such GPU, or it cannot be opened
inline constexpr int kWorkerExitNoPlugin = 7;
inline constexpr int kWorkerExitNoDriver = 8;
inline constexpr int kWorkerExitDriverTooOld = 9;
inline constexpr int kWorkerExitWrongArchitecture = 10;
inline constexpr int kWorkerExitKeptOff = 13;  // by the machine's settings

struct SupervisionLimits {
  Duration start_timeout = std::chrono::seconds(20);  // until it listens
  Duration adopt_timeout = std::chrono::seconds(10);  // until it answered AdoptHello
  Duration hang_timeout = std::chrono::seconds(5);    // busy without progress
  Duration kill_timeout = std::chrono::seconds(2);    // a killed worker that is still there is killed again
  Duration first_backoff = std::chrono::milliseconds(100);
  Duration longest_backoff = std::chrono::seconds(60);
  Duration healthy_after = std::chrono::seconds(30);
  // A GPU is told to be unfit when so many of its workers in a row have ended before they were ready.
  std::uint32_t most_starts = 3;
};

// Events.
struct Begin {
  bool worker_listens = false;
};                    // a worker from before this daemon waits on its socket: adopt it
struct Listening {};  // the started worker has made its socket
struct AdoptSucceeded {
  bool same_worker = false;
};
struct AdoptFailed {
  std::string why{};
};
struct Exited {
  int code = 0;  // with signal 0
  int signal = 0;
  std::string last_words{};
};
// A look at the worker's control page. `progress` is any number that changes whenever the worker gets on.
struct Progress {
  bool busy = false;
  std::uint64_t progress = 0;
};
struct Restart {
  std::string why{};
};  // an operator or a protocol error: kill it and start again
struct DeviceUnfit {
  std::string why{};
};  // the device's watch says that nothing is to run on it
// The worker is to serve another key. `fresh`: a new worker, at once; else the present worker, which is
// adopted anew. The caller is told of no loss, since it knows. Nothing happens unless the worker is ready.
struct Reassign {
  bool fresh = false;
};
struct Stop {};
struct Tick {};  // the time that NextDue() named has come
using ExecutorEvent = std::variant<Begin, Listening, AdoptSucceeded, AdoptFailed, Exited, Progress, Restart,
                                   DeviceUnfit, Reassign, Stop, Tick>;

// Actions, to be done in order.
enum class ExecutorActionKind {
  kSpawn,
  kReportStarting,
  kAdopt,
  kKill,      // SIGKILL
  kShutDown,  // ask it to end; the machine kills after kill_timeout
  kReportReady,
  kReportLost,  // what it held is gone; reported once per life that was ready
  kReportUnfit,
};
struct ExecutorAction {
  ExecutorActionKind kind{};
  std::string why{};
};

class ExecutorMachine {
 public:
  explicit ExecutorMachine(SupervisionLimits limits = {}) : limits_(limits) {}

  [[nodiscard]] std::vector<ExecutorAction> On(const ExecutorEvent& event, Time now);
  // When to send Tick; Time::max(): only an event changes anything.
  [[nodiscard]] Time NextDue() const { return due_; }
  [[nodiscard]] ExecutorState state() const { return state_; }
  [[nodiscard]] std::uint64_t restarts() const { return starts_.restarts; }
  [[nodiscard]] Duration backoff() const { return starts_.backoff; }
  [[nodiscard]] const std::string& reason() const { return reason_; }  // of the last failure

 private:
  using Actions = std::vector<ExecutorAction>;
  void Handle(const Begin& event, Time now, Actions& out);
  void Handle(const Listening& event, Time now, Actions& out);
  void Handle(const AdoptSucceeded& event, Time now, Actions& out);
  void Handle(const AdoptFailed& event, Time now, Actions& out);
  void Handle(const Exited& event, Time now, Actions& out);
  void Handle(const Progress& event, Time now, Actions& out);
  void Handle(const Restart& event, Time now, Actions& out);
  void Handle(const DeviceUnfit& event, Time now, Actions& out);
  void Handle(const Reassign& event, Time now, Actions& out);
  void Handle(const Stop& event, Time now, Actions& out);
  void Handle(const Tick& event, Time now, Actions& out);
  void Enter(ExecutorState state, Time due);
  void Spawn(Time now, Actions& out);
  void KillAsHung(const std::string& why, Time now, Actions& out);
  void ReportLost(const std::string& why, Actions& out);
  [[nodiscard]] Time ReadyDue() const;
  void BackOff(const std::string& why, Time now);
  // The worker has ended before it was ready.
  void StartFailed(Actions& out);
  void ReportNotComing(Actions& out);
  [[nodiscard]] bool StartsAtOnce() const;

  SupervisionLimits limits_;
  ExecutorState state_ = ExecutorState::kAbsent;
  Time due_ = Time::max();
  Time ready_since_ = Time::max();  // of this worker; it was not ready yet
  Time last_progress_{};
  std::uint64_t progress_ = 0;
  bool busy_ = false;
  bool reported_ready_ = false;
  bool replacing_ = false;  // hung by our own will: its end is followed by a new one at once
  struct {
    Duration backoff{};
    std::uint32_t failed = 0;  // in a row
    std::uint64_t restarts = 0;
  } starts_;
  std::string reason_;
};

}  // namespace troupe::node
