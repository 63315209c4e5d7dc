#include "cluster/profiling/profile_checks.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/function_table.hpp"
#include "cluster/profiling/trial_plan.hpp"
#include "proto/open_dimension.hpp"

namespace troupe::cluster {

namespace {

constexpr int kMostRows = 2000;
constexpr std::size_t kMostText = 500;
constexpr std::int64_t kMostTime = std::int64_t{24} * 3600 * 1'000'000'000;
constexpr double kMostThroughput = 1e9;
constexpr std::uint64_t kMostRunBytes = std::uint64_t{1} << 50;

absl::Status CheckBatch(const proto::FunctionRecord& function, std::uint32_t batch) {
  if (batch <= 1) return absl::OkStatus();
  if (function.inputs().empty())
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(function.key()), " has no input, and so no batch of ", batch));
  for (const auto& spec : function.inputs())
    if (!proto::LeadingIsOpen(spec))
      return absl::FailedPreconditionError(absl::StrCat(Describe(function.key()), " has no batch of ", batch,
                                                        ": the first dimension of its input '", spec.name(),
                                                        "' is fixed"));
  return absl::OkStatus();
}

std::string Words(const TrialPoint& point) {
  return absl::StrCat("the row of ", point.sm_partition, " % of the SMs, a quota of ", point.quota_limit,
                      " % and a batch of ", point.batch);
}

absl::Status CheckPoint(const TrialPoint& point) {
  const auto percent = [](std::uint32_t value) { return value >= 1 && value <= 100; };
  if (percent(point.sm_partition) && percent(point.quota_limit) && point.batch >= 1 &&
      point.batch <= kMostProfiledBatch)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Words(point),
                                                 " cannot be: shares and quotas lie between 1 and 100, and "
                                                 "batches between 1 and ",
                                                 kMostProfiledBatch));
}

absl::Status CheckFigures(const proto::ProfileRow& row) {
  const auto wrong = [&](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(Words(PointOf(row)), " has ", what));
  };
  if (!proto::ProfileRowState_IsValid(row.state())) return wrong("a state that is not known");
  if (row.reason().size() > kMostText) return wrong("a reason of more than 500 bytes");
  if (!std::isfinite(row.throughput()) || row.throughput() < 0 || row.throughput() > kMostThroughput)
    return wrong("a throughput that is not a number from 0 to 1e9");
  for (const auto time : {row.run_ns(), row.p50_ns(), row.p90_ns(), row.p99_ns(), row.took_ns()})
    if (time < 0 || time > kMostTime) return wrong("a time that does not lie between 0 and a day");
  if (row.run_bytes() > kMostRunBytes) return wrong("more memory of a run than any GPU has");
  if (row.p50_ns() > row.p90_ns() || row.p90_ns() > row.p99_ns())
    return wrong("percentiles of the latency that do not grow");
  if (row.state() == proto::PROFILE_ROW_FAILED)
    return row.throughput() > 0 ? wrong("a throughput, and says that its trial failed") : absl::OkStatus();
  if (row.throughput() == 0 || row.run_ns() == 0) return wrong("no throughput, or no time of a run");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMayBeProfiled(const proto::FunctionRecord& function, const proto::ProfilingGrid& grid) {
  if (!function.state().empty())
    return absl::FailedPreconditionError(absl::StrCat(Describe(function.key()),
                                                      " keeps state on the device, which trials would "
                                                      "advance: it cannot be profiled"));
  for (const auto batch : grid.batches()) TROUPE_RETURN_IF_ERROR(CheckBatch(function, batch));
  return absl::OkStatus();
}

absl::Status CheckProfile(const proto::FunctionProfile& profile, const proto::FunctionRecord& function) {
  if (profile.model_digest() != function.model_digest())
    return absl::FailedPreconditionError(absl::StrCat(
        "the profile is of the model ", profile.model_digest().substr(0, 64), ", and ",
        Describe(function.key()), " has the model ", function.model_digest(), ": it is not taken"));
  if (profile.precision() != function.precision())
    return absl::FailedPreconditionError(absl::StrCat("the profile is not of the precision in which ",
                                                      Describe(function.key()),
                                                      " computes: it is not taken"));
  const auto& kind = profile.gpu_kind();
  if (kind.empty() || kind.size() > 100 || !std::ranges::all_of(kind, absl::ascii_isprint))
    return absl::InvalidArgumentError(
        "the profile names no kind of GPU: it has between 1 and 100 printable characters of ASCII");
  if (profile.rows().empty() || profile.rows_size() > kMostRows)
    return absl::InvalidArgumentError(
        absl::StrCat("the profile has ", profile.rows_size(), " rows; it has between 1 and ", kMostRows));
  std::set<TrialPoint> seen;
  for (const auto& row : profile.rows()) {
    const auto point = PointOf(row);
    TROUPE_RETURN_IF_ERROR(CheckPoint(point));
    TROUPE_RETURN_IF_ERROR(CheckBatch(function, point.batch));
    TROUPE_RETURN_IF_ERROR(CheckFigures(row));
    if (!seen.insert(point).second)
      return absl::InvalidArgumentError(absl::StrCat(Words(point), " stands in the profile twice"));
  }
  return absl::OkStatus();
}

}  // namespace troupe::cluster
