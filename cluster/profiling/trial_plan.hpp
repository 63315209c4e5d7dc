// TRIAL PLAN: which point of an experiment is measured next, and what the measured points say of the others
// (001 FaST-GShare, sections 3.2 and 5.2). Pure: the experiment's record alone decides, so an experiment goes on
// after a restart of the manager as it would have gone on without.
//
// A grid measures every point. Bisecting measures at most 40 % of a batch's points, and never fewer than one
// search for the saturation takes, in this order:
//   1. the largest and the smallest share, at the largest quota;
//   2. between them the share from which on the throughput grows no more (the saturation), by halving;
//   3. the saturation at every other quota, and the smallest share at the smallest quota: throughput is
//      expected in proportion to the quota;
//   4. what is farthest from a measured point at the largest quota, until a trial's throughput was foreseen to 3 %;
//      and if the trial at the smallest quota was not, the shares above it at that quota, likewise.
// The rest lies between measured points: piecewise linear in the share, in proportion in the quota.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/function_profile.pb.h"

namespace troupe::cluster {

inline constexpr double kMostProfileError = 0.03;
inline constexpr double kBisectedPart = 0.4;
inline constexpr std::uint32_t kMostProfiledBatch = 32;

struct TrialPoint {
  std::uint32_t sm_partition = 0;
  std::uint32_t quota_limit = 0;
  std::uint32_t batch = 0;

  auto operator<=>(const TrialPoint&) const = default;
};
[[nodiscard]] TrialPoint PointOf(const proto::ProfileRow& row);
[[nodiscard]] proto::ProfileRow RowAt(const TrialPoint& point);

// What is not said is as in the paper: shares of 6, 12, 24, 50, 60, 80 and 100 %, quotas of 20, 40, 60, 80 and
// 100 %, and a batch of one. InvalidArgument: a value that a point cannot have, or more than 2,000 points.
[[nodiscard]] absl::StatusOr<proto::ProfilingGrid> CompleteGrid(const proto::ProfilingGrid& wish);

// Nothing when the experiment has measured what it wants to.
[[nodiscard]] std::optional<TrialPoint> NextTrial(const proto::ProfilingExperiment& experiment);
// How many more trials there will be at most.
[[nodiscard]] std::uint32_t TrialsLeft(const proto::ProfilingExperiment& experiment);
// All points of which something is known, in the order of batches, quotas and shares: trials as they ended, and
// what lies between the measured ones. An experiment that is not done yet has no row for what it has not tried.
[[nodiscard]] std::vector<proto::ProfileRow> RowsOf(const proto::ProfilingExperiment& experiment);

}  // namespace troupe::cluster
