#include "shell/chaos_run.hpp"

#include <algorithm>

#include "base/status.hpp"
#include "shell/exit_code.hpp"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(100);
constexpr Duration kAnswer = std::chrono::seconds(1);
// A fault that was not noticed by then did no harm: for example an idle worker that hangs.
constexpr Duration kUnnoticed = std::chrono::seconds(5);
constexpr std::uint32_t kEventsAtOnce = 1000;
constexpr char kInjected[] = "fault-injected";
constexpr char kManager[] = "manager";

bool IsReady(const proto::GpuRecord& gpu) {
  return gpu.state() == "ready";
}

}  // namespace

Duration ChaosRun::Passed() const {
  return session_.console().Now() - start_;
}

absl::Status ChaosRun::Go() {
  TROUPE_RETURN_IF_ERROR(Remember());
  start_ = session_.console().Now();
  for (const auto& planned : plan_.faults) {
    TROUPE_RETURN_IF_ERROR(Watch(planned.at, Until::kTime));
    TROUPE_RETURN_IF_ERROR(Inject(planned));
  }
  Duration end{};
  for (const auto& result : results_)
    end = std::max(end, result.began + Duration(result.planned.fault.duration_ns()));
  TROUPE_RETURN_IF_ERROR(Watch(end, Until::kTime));
  TROUPE_RETURN_IF_ERROR(Watch(end + plan_.settle, Until::kWell));
  if (sick_.empty()) return absl::OkStatus();
  return absl::AbortedError(Cat("the cluster is not well ", FormatDuration(plan_.settle),
                                " after the last fault: ", sick_, "; 'troupe events' tells what happened"));
}

absl::Status ChaosRun::Remember() {
  proto::AdminRequest request;
  request.mutable_cluster_status();
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session_.Ask(request));
  for (const auto& entry : reply.status().members()) {
    const auto& member = entry.member();
    if (member.state() != proto::MEMBER_ALIVE) continue;
    members_.insert(member.name());
    for (const auto& gpu : member.gpus())
      if (IsReady(gpu)) gpus_.emplace(member.name(), gpu.index());
  }
  request.mutable_list_events()->set_limit(1);
  TROUPE_ASSIGN_OR_RETURN(const auto events, session_.Ask(request));
  for (const auto& event : events.events()) last_event_ = event.sequence();
  return absl::OkStatus();
}

absl::Status ChaosRun::Watch(Duration end, Until until) {
  while (Passed() < end) {
    TROUPE_RETURN_IF_ERROR(Look());
    if (until == Until::kWell && Settled()) return absl::OkStatus();
    const auto wait = std::min(kLookEvery, end - Passed());
    if (wait <= Duration::zero()) break;
    if (session_.console().Sleep(wait) != Console::Wake::kTimeout) return InterruptedError();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<proto::AdminReply>> ChaosRun::Ask(proto::AdminRequest request) {
  auto reply = session_.Ask(std::move(request), "watching", kAnswer);
  if (reply.ok()) return std::optional(*std::move(reply));
  if (ExitCodeOf(reply.status()) == ExitCode::kInterrupted) return reply.status();
  Away();
  return std::optional<proto::AdminReply>();
}

absl::Status ChaosRun::Look() {
  TROUPE_RETURN_IF_ERROR(LookAtEvents());
  proto::AdminRequest request;
  request.mutable_cluster_status();
  TROUPE_ASSIGN_OR_RETURN(const auto reply, Ask(request));
  if (!reply) return absl::OkStatus();
  sick_ = Sick(reply->status());
  if (sick_.empty()) SeenWell();
  return absl::OkStatus();
}

absl::Status ChaosRun::LookAtEvents() {
  proto::AdminRequest request;
  request.mutable_list_events()->set_after(last_event_);
  request.mutable_list_events()->set_limit(kEventsAtOnce);
  TROUPE_ASSIGN_OR_RETURN(const auto reply, Ask(request));
  if (!reply) return absl::OkStatus();
  away_ = false;
  for (const auto& event : reply->events()) {
    last_event_ = std::max(last_event_, event.sequence());
    if (event.kind() == "swap" || event.kind() == kInjected) continue;
    if (!session_.json()) session_.out() << EventLine(event, session_.style()) << std::flush;
    Noticed(event.member());
  }
  return absl::OkStatus();
}

// A member that comes back numbers its events anew.
void ChaosRun::Away() {
  sick_ = "the manager does not answer";
  last_event_ = 0;
  if (std::exchange(away_, true)) return;
  if (!session_.json())
    session_.out() << FormatDuration(Passed()) << "  the manager does not answer\n" << std::flush;
  Noticed(kManager);
}

void ChaosRun::Noticed(const std::string& member) {
  for (auto& result : results_)
    if (result.planned.fault.member() == member && result.refused.empty() && !result.noticed)
      result.noticed = Passed() - result.began;
}

void ChaosRun::SeenWell() {
  for (auto& result : results_) {
    const auto ended = result.began + Duration(result.planned.fault.duration_ns());
    if (result.noticed && !result.well && Passed() >= ended) result.well = Passed() - result.began;
  }
}

std::string ChaosRun::Sick(const proto::ClusterStatusReply& status) const {
  auto members = members_;
  auto gpus = gpus_;
  for (const auto& entry : status.members()) {
    const auto& member = entry.member();
    if (member.state() != proto::MEMBER_ALIVE) continue;
    members.erase(member.name());
    for (const auto& gpu : member.gpus())
      if (IsReady(gpu)) gpus.erase({member.name(), gpu.index()});
  }
  if (!members.empty()) return Cat(*members.begin(), " is not alive");
  if (!gpus.empty()) return Cat("GPU ", gpus.begin()->first, "/", gpus.begin()->second, " is not ready");
  return "";
}

bool ChaosRun::Settled() const {
  if (!sick_.empty()) return false;
  return std::all_of(results_.begin(), results_.end(), [this](const FaultResult& result) {
    const auto ended = result.began + Duration(result.planned.fault.duration_ns());
    return !result.refused.empty() || result.noticed || Passed() >= ended + kUnnoticed;
  });
}

absl::Status ChaosRun::Inject(const PlannedFault& planned) {
  proto::AdminRequest request;
  *request.mutable_inject_fault() = planned.fault;
  FaultResult result{planned, "", Passed(), {}, {}};
  const auto reply = session_.Ask(request, "injecting", kAnswer);
  if (!reply.ok()) {
    // No daemon allows the fault, or the operator stopped the run: it ends here.
    if (absl::IsFailedPrecondition(reply.status()) || ExitCodeOf(reply.status()) == ExitCode::kInterrupted)
      return reply.status();
    result.refused = std::string(reply.status().message());
  }
  if (!session_.json()) {
    session_.out() << FormatDuration(result.began) << "  " << Printable(DescribeFault(planned.fault))
                   << (result.refused.empty() ? "" : Cat(": not done: ", Printable(result.refused))) << "\n"
                   << std::flush;
  }
  sick_ = "not looked at yet";
  results_.push_back(std::move(result));
  return absl::OkStatus();
}

}  // namespace troupe::shell
