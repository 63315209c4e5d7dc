#include "cluster/profiling/trial_plan.hpp"

#include <algorithm>
#include <map>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/profiling/batch_trials.hpp"
#include "scheduling/profile_grid.hpp"

namespace troupe::cluster {

namespace {

using Values = google::protobuf::RepeatedField<std::uint32_t>;
using Rows = std::vector<const proto::ProfileRow*>;

constexpr std::uint32_t kBatches[] = {1};
constexpr std::size_t kMostPoints = 2000;

absl::Status Complete(const char* what, std::uint32_t most, std::span<const std::uint32_t> usual,
                      Values& values) {
  if (values.empty()) values.Assign(usual.begin(), usual.end());
  std::ranges::sort(values);
  for (int i = 0; i < values.size(); ++i) {
    if (values[i] < 1 || values[i] > most)
      return absl::InvalidArgumentError(
          absl::StrCat("the experiment has a ", what, " of ", values[i], "; it lies between 1 and ", most));
    if (i > 0 && values[i] == values[i - 1])
      return absl::InvalidArgumentError(
          absl::StrCat("the experiment names the ", what, " ", values[i], " twice"));
  }
  return absl::OkStatus();
}

Rows RowsOfBatch(const proto::ProfilingExperiment& experiment, std::uint32_t batch) {
  Rows rows;
  for (const auto& row : experiment.rows())
    if (row.batch() == batch) rows.push_back(&row);
  return rows;
}

bool Has(const proto::ProfilingExperiment& experiment, const TrialPoint& point) {
  return std::ranges::any_of(experiment.rows(), [&](const auto& row) { return PointOf(row) == point; });
}

// Calls `use` with each point of the grid, in order, until it says false.
template <class Use>
void ForEachPoint(const proto::ProfilingGrid& grid, const Use& use) {
  for (const auto batch : grid.batches())
    for (const auto quota : grid.quota_limits())
      for (const auto share : grid.sm_partitions())
        if (!use(TrialPoint{share, quota, batch})) return;
}

TrialPoint PointAt(const proto::ProfilingGrid& grid, const BatchTrials::Cell& cell, std::uint32_t batch) {
  return {grid.sm_partitions(static_cast<int>(cell.share)), grid.quota_limits(static_cast<int>(cell.quota)),
          batch};
}

// What a run takes of the device's memory depends on its batch, not on its share or quota.
std::uint64_t RunBytesOf(const Rows& of_one_batch) {
  std::uint64_t most = 0;
  for (const auto* row : of_one_batch) most = std::max(most, row->run_bytes());
  return most;
}

}  // namespace

TrialPoint PointOf(const proto::ProfileRow& row) {
  return {row.sm_partition(), row.quota_limit(), row.batch()};
}

proto::ProfileRow RowAt(const TrialPoint& point) {
  proto::ProfileRow row;
  row.set_sm_partition(point.sm_partition);
  row.set_quota_limit(point.quota_limit);
  row.set_batch(point.batch);
  return row;
}

absl::StatusOr<proto::ProfilingGrid> CompleteGrid(const proto::ProfilingGrid& wish) {
  auto grid = wish;
  TROUPE_RETURN_IF_ERROR(Complete("share of the SMs", 100, kGridShares, *grid.mutable_sm_partitions()));
  TROUPE_RETURN_IF_ERROR(Complete("quota", 100, kGridQuotas, *grid.mutable_quota_limits()));
  TROUPE_RETURN_IF_ERROR(Complete("batch", kMostProfiledBatch, kBatches, *grid.mutable_batches()));
  const auto points = static_cast<std::size_t>(grid.sm_partitions_size()) *
                      static_cast<std::size_t>(grid.quota_limits_size()) *
                      static_cast<std::size_t>(grid.batches_size());
  if (points > kMostPoints)
    return absl::InvalidArgumentError(
        absl::StrCat("the experiment has ", points, " points; ", kMostPoints, " are the most"));
  return grid;
}

std::optional<TrialPoint> NextTrial(const proto::ProfilingExperiment& experiment) {
  std::optional<TrialPoint> next;
  const auto& grid = experiment.grid();
  if (experiment.method() == proto::PROFILING_GRID) {
    ForEachPoint(grid, [&](const TrialPoint& point) {
      if (!Has(experiment, point)) next = point;
      return !next;
    });
    return next;
  }
  for (const auto batch : grid.batches()) {
    const BatchTrials trials(grid, RowsOfBatch(experiment, batch));
    if (trials.next()) return PointAt(grid, *trials.next(), batch);
  }
  return next;
}

std::uint32_t TrialsLeft(const proto::ProfilingExperiment& experiment) {
  const auto& grid = experiment.grid();
  std::size_t left = 0;
  if (experiment.method() == proto::PROFILING_GRID) {
    left = static_cast<std::size_t>(
        grid.sm_partitions_size() * grid.quota_limits_size() * grid.batches_size() - experiment.rows_size());
  } else {
    for (const auto batch : grid.batches()) {
      const BatchTrials trials(grid, RowsOfBatch(experiment, batch));
      if (trials.next()) left += trials.budget() - trials.used();
    }
  }
  return static_cast<std::uint32_t>(left);
}

std::vector<proto::ProfileRow> RowsOf(const proto::ProfilingExperiment& experiment) {
  const auto& grid = experiment.grid();
  std::map<TrialPoint, const proto::ProfileRow*> ended;
  for (const auto& row : experiment.rows()) ended.emplace(PointOf(row), &row);
  std::vector<proto::ProfileRow> rows;
  for (const auto batch : grid.batches()) {
    const auto of_batch = RowsOfBatch(experiment, batch);
    const BatchTrials trials(grid, of_batch);
    const bool foresees = experiment.method() == proto::PROFILING_BISECT && !trials.next();
    const auto run_bytes = RunBytesOf(of_batch);
    for (int quota = 0; quota < grid.quota_limits_size(); ++quota) {
      for (int share = 0; share < grid.sm_partitions_size(); ++share) {
        const BatchTrials::Cell cell{static_cast<std::size_t>(share), static_cast<std::size_t>(quota)};
        const auto point = PointAt(grid, cell, batch);
        if (const auto it = ended.find(point); it != ended.end()) {
          rows.push_back(*it->second);
          continue;
        }
        const auto foreseen = foresees ? trials.At(cell) : std::nullopt;
        if (!foreseen) continue;
        auto row = RowAt(point);
        row.set_state(proto::PROFILE_ROW_INTERPOLATED);
        row.set_throughput(foreseen->throughput);
        row.set_run_ns(static_cast<std::int64_t>(foreseen->run_ns));
        row.set_run_bytes(run_bytes);
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace troupe::cluster
