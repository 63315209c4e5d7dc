// The kinds of events, by the names that people ask for. tests/architecture keeps the list true: it has each
// kind that the manager and the nodes write, and no other.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe::proto {

// In order. Behind "member-" and "worker-" stand states too (MemberState, ExecutorReport).
inline constexpr auto kEventKinds = std::to_array<std::string_view>({
    "adoption-failed",
    "audit-behind",
    "clock-off",
    "copies-wanted",
    "events-lost",
    "fault-injected",
    "fault-refused",
    "function-broken",
    "function-deployed",
    "function-loaded",
    "function-removed",
    "function-split",
    "function-unloaded",
    "function-updated",
    "gpu-killed",
    "instance-unplaced",
    "instances-placed",
    "key-created",
    "key-revoked",
    "manager-away",
    "manager-stood-still",
    "member-alive",
    "member-dead",
    "member-draining",
    "member-joined",
    "member-left",
    "member-refused",
    "member-suspect",
    "model-adopted",
    "model-damaged",
    "model-loaded",
    "model-not-loaded",
    "model-range-wrong",
    "objects-kept",
    "objects-removed",
    "profile-ended",
    "profile-imported",
    "profile-removed",
    "profile-started",
    "profiles-refused",
    "provision-failed",
    "provision-ordered",
    "provision-taken-up",
    "request-given-up",
    "run-claim-refused",
    "run-cut",
    "run-reopened",
    "run-taken-over",
    "runtime-assigned",
    "runtime-reclaimed",
    "sequences-ended",
    "state-damaged",
    "state-in-step",
    "state-lost",
    "state-moved",
    "state-not-moved",
    "state-not-saved",
    "state-out-of-step",
    "state-refused",
    "state-restored",
    "state-stays",
    "state-unreachable",
    "state-unreadable",
    "step-recomputed",
    "swap",
    "swap-failed",
    "usage-not-saved",
    "usage-not-stored",
    "usage-refused",
    "weights-dropped",
    "weights-kept",
    "worker-down",
    "worker-ready",
    "worker-refused",
    "worker-sizes-refused",
    "worker-unfit",
    "workflow-removed",
    "workflow-submitted",
});

[[nodiscard]] constexpr bool IsEventKind(std::string_view kind) {
  return std::find(kEventKinds.begin(), kEventKinds.end(), kind) != kEventKinds.end();
}

}  // namespace troupe::proto
