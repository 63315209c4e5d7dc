#include "node/runtimes/executor_machine.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::node {

namespace {

// Memory that another process holds, or that was missing (codes above), may be there the next time.
bool MeansUnfit(int code) {
  switch (code) {
    case kWorkerExitUsage:
    case kWorkerExitNoDevice:
    case kWorkerExitNoPlugin:
    case kWorkerExitNoDriver:
    case kWorkerExitDriverTooOld:
    case kWorkerExitWrongArchitecture:
    case kWorkerExitKeptOff:
      return true;
    default:
      return false;
  }
}

std::string Describe(const Exited& event) {
  std::string text = event.signal != 0 ? absl::StrCat("killed by signal ", event.signal)
                                       : absl::StrCat("exited with code ", event.code);
  if (!event.last_words.empty()) absl::StrAppend(&text, ": ", event.last_words);
  return text;
}

}  // namespace

const char* Name(ExecutorState state) {
  switch (state) {
    case ExecutorState::kAbsent:
      return "absent";
    case ExecutorState::kStarting:
      return "starting";
    case ExecutorState::kAdopting:
      return "adopting";
    case ExecutorState::kReady:
      return "ready";
    case ExecutorState::kHung:
      return "hung";
    case ExecutorState::kBackoff:
      return "backoff";
    case ExecutorState::kUnfit:
      return "unfit";
    case ExecutorState::kStopping:
      return "stopping";
  }
  return "unknown";
}

std::vector<ExecutorAction> ExecutorMachine::On(const ExecutorEvent& event, Time now) {
  Actions out;
  std::visit([&](const auto& e) { Handle(e, now, out); }, event);
  return out;
}

void ExecutorMachine::Enter(ExecutorState state, Time due) {
  state_ = state;
  due_ = due;
}

void ExecutorMachine::Spawn(Time now, Actions& out) {
  replacing_ = false;
  ready_since_ = Time::max();
  Enter(ExecutorState::kStarting, now + limits_.start_timeout);
  out.push_back({ExecutorActionKind::kSpawn, {}});
  // A GPU that was told to be unfit stays so until a worker is ready.
  if (starts_.failed < limits_.most_starts) out.push_back({ExecutorActionKind::kReportStarting, {}});
}

// The worker is there and of no use: it is killed, and its exit leads on.
void ExecutorMachine::KillAsHung(const std::string& why, Time now, Actions& out) {
  reason_ = why;
  Enter(ExecutorState::kHung, now + limits_.kill_timeout);
  ReportLost(why, out);
  out.push_back({ExecutorActionKind::kKill, why});
}

void ExecutorMachine::ReportLost(const std::string& why, Actions& out) {
  if (!reported_ready_) return;
  reported_ready_ = false;
  out.push_back({ExecutorActionKind::kReportLost, why});
}

void ExecutorMachine::BackOff(const std::string& why, Time now) {
  reason_ = why;
  ++starts_.restarts;
  starts_.backoff = starts_.backoff == Duration::zero()
                        ? limits_.first_backoff
                        : std::min(starts_.backoff * 2, limits_.longest_backoff);
  Enter(ExecutorState::kBackoff, now + starts_.backoff);
}

void ExecutorMachine::StartFailed(Actions& out) {
  if (starts_.failed + 1 < limits_.most_starts) {
    ++starts_.failed;
  } else {
    ReportNotComing(out);
  }
}

void ExecutorMachine::ReportNotComing(Actions& out) {
  if (std::exchange(starts_.failed, limits_.most_starts) == limits_.most_starts) return;  // it was told
  out.push_back({ExecutorActionKind::kReportUnfit,
                 absl::StrCat("no worker comes up, and it is tried again: ", reason_)});
}

// A look is due when silence would be a hang, and when enough health is earned to forget the back-off.
Time ExecutorMachine::ReadyDue() const {
  Time due = starts_.backoff == Duration::zero() ? Time::max() : ready_since_ + limits_.healthy_after;
  return busy_ ? std::min(due, last_progress_ + limits_.hang_timeout) : due;
}

void ExecutorMachine::Handle(const Begin& event, Time now, Actions& out) {
  if (state_ != ExecutorState::kAbsent) return;
  if (!event.worker_listens) return Spawn(now, out);
  Enter(ExecutorState::kAdopting, now + limits_.adopt_timeout);
  out.push_back({ExecutorActionKind::kAdopt, {}});
}

void ExecutorMachine::Handle(const Listening&, Time now, Actions& out) {
  if (state_ != ExecutorState::kStarting) return;
  Enter(ExecutorState::kAdopting, now + limits_.adopt_timeout);
  out.push_back({ExecutorActionKind::kAdopt, {}});
}

void ExecutorMachine::Handle(const AdoptSucceeded&, Time now, Actions& out) {
  if (state_ != ExecutorState::kAdopting) return;
  ready_since_ = last_progress_ = now;
  busy_ = false;
  starts_.failed = 0;
  reported_ready_ = true;
  Enter(ExecutorState::kReady, Time::max());
  due_ = ReadyDue();
  out.push_back({ExecutorActionKind::kReportReady, {}});
}

void ExecutorMachine::Handle(const AdoptFailed& event, Time now, Actions& out) {
  if (state_ == ExecutorState::kAdopting) KillAsHung(absl::StrCat("adoption failed: ", event.why), now, out);
}

void ExecutorMachine::Handle(const Exited& event, Time now, Actions& out) {
  if (state_ == ExecutorState::kAbsent || state_ == ExecutorState::kUnfit ||
      state_ == ExecutorState::kBackoff)
    return;
  const std::string why = Describe(event);
  ReportLost(why, out);
  if (state_ == ExecutorState::kStopping) return Enter(ExecutorState::kAbsent, Time::max());
  // A worker that was well long enough starts with a clean record.
  if (state_ == ExecutorState::kReady && now - ready_since_ >= limits_.healthy_after)
    starts_.backoff = Duration::zero();
  if (event.signal == 0 && MeansUnfit(event.code)) {
    reason_ = why;
    Enter(ExecutorState::kUnfit, Time::max());
    out.push_back({ExecutorActionKind::kReportUnfit, why});
    return;
  }
  if (std::exchange(replacing_, false)) return Spawn(now, out);
  const bool at_once = StartsAtOnce();
  const bool came_up = ready_since_ != Time::max();
  // The reason for a kill says more than the signal that it caused.
  BackOff(state_ == ExecutorState::kHung ? reason_ : why, now);
  if (!came_up) StartFailed(out);
  if (at_once) Spawn(now, out);
}

bool ExecutorMachine::StartsAtOnce() const {
  return starts_.backoff == Duration::zero() && ready_since_ != Time::max();
}

void ExecutorMachine::Handle(const Progress& event, Time now, Actions&) {
  if (state_ != ExecutorState::kReady) return;
  if (!event.busy || !busy_ || progress_ != event.progress) last_progress_ = now;
  busy_ = event.busy;
  progress_ = event.progress;
  due_ = ReadyDue();
}

void ExecutorMachine::Handle(const Restart& event, Time now, Actions& out) {
  switch (state_) {
    case ExecutorState::kStarting:
    case ExecutorState::kAdopting:
    case ExecutorState::kReady:
      return KillAsHung(event.why, now, out);
    case ExecutorState::kUnfit:
    case ExecutorState::kBackoff:
      starts_.failed = 0;  // what it was unfit for is mended, as far as the operator knows
      return Spawn(now, out);
    case ExecutorState::kAbsent:
    case ExecutorState::kHung:
    case ExecutorState::kStopping:
      return;
  }
}

// The operator's restart brings it back, for as long as nothing is wrong.
void ExecutorMachine::Handle(const DeviceUnfit& event, Time, Actions& out) {
  if (state_ != ExecutorState::kStarting && state_ != ExecutorState::kAdopting &&
      state_ != ExecutorState::kReady)
    return;
  reason_ = event.why;
  ReportLost(event.why, out);
  out.push_back({ExecutorActionKind::kKill, event.why});
  Enter(ExecutorState::kUnfit, Time::max());
  out.push_back({ExecutorActionKind::kReportUnfit, event.why});
}

void ExecutorMachine::Handle(const Reassign& event, Time now, Actions& out) {
  if (state_ != ExecutorState::kReady) return;
  if (!event.fresh) {
    Enter(ExecutorState::kAdopting, now + limits_.adopt_timeout);
    out.push_back({ExecutorActionKind::kAdopt, {}});
    return;
  }
  reported_ready_ = false;
  KillAsHung("its place is given to another key", now, out);
  replacing_ = true;
}

void ExecutorMachine::Handle(const Stop&, Time now, Actions& out) {
  switch (state_) {
    case ExecutorState::kAbsent:
    case ExecutorState::kStopping:
      return;
    case ExecutorState::kBackoff:
    case ExecutorState::kUnfit:
      return Enter(ExecutorState::kAbsent, Time::max());
    default:
      break;
  }
  const bool polite = state_ == ExecutorState::kReady;
  reported_ready_ = false;  // the part that stops it knows
  Enter(ExecutorState::kStopping, now + limits_.kill_timeout);
  out.push_back({polite ? ExecutorActionKind::kShutDown : ExecutorActionKind::kKill, "stopping"});
}

void ExecutorMachine::Handle(const Tick&, Time now, Actions& out) {
  if (now < due_) return;
  switch (state_) {
    case ExecutorState::kStarting:
      KillAsHung(absl::StrCat("did not listen within ", FormatDuration(limits_.start_timeout)), now, out);
      return ReportNotComing(out);
    case ExecutorState::kAdopting:
      KillAsHung(absl::StrCat("did not answer within ", FormatDuration(limits_.adopt_timeout)), now, out);
      return ReportNotComing(out);
    case ExecutorState::kBackoff:
      return Spawn(now, out);
    case ExecutorState::kHung:
    case ExecutorState::kStopping:
      due_ = now + limits_.kill_timeout;
      out.push_back({ExecutorActionKind::kKill, "still there"});
      return;
    case ExecutorState::kReady:
      break;
    default:
      due_ = Time::max();
      return;
  }
  if (starts_.backoff != Duration::zero() && now - ready_since_ >= limits_.healthy_after)
    starts_.backoff = Duration::zero();
  if (busy_ && now - last_progress_ >= limits_.hang_timeout) {
    return KillAsHung(absl::StrCat("busy without progress for ", FormatDuration(now - last_progress_)), now,
                      out);
  }
  due_ = ReadyDue();
}

}  // namespace troupe::node
