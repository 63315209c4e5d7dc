#include "cluster/ownership/scaled_record.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/function_sharing.hpp"
#include "proto/gpu_instances.hpp"
#include "proto/gpu_sharing.hpp"
#include "scheduling/slo_count.hpp"

namespace troupe::cluster {

namespace {

// Also of a function that declares that none may be late.
constexpr double kLeastLateAllowed = 0.001;

// What instances on this share of the SMs may have of the time.
std::vector<Extent> ExtentsOn(std::uint32_t share, const proto::GpuSharing& sharing) {
  const std::uint32_t limit = sharing.quota_limit() == 0 ? kWholeGpu : sharing.quota_limit();
  std::vector<Extent> extents;
  for (std::uint32_t quota = kQuotaStep; quota < limit; quota += kQuotaStep)
    extents.push_back({.quota = quota, .sms = share});
  extents.push_back({.quota = limit, .sms = share});
  return extents;
}

// Throughput grows in proportion to the time.
void AddPoints(const proto::ProfileRow& row, const proto::GpuSharing& sharing,
               std::vector<ScalePoint>& points) {
  for (const Extent& extent : ExtentsOn(row.sm_partition(), sharing))
    points.push_back({.extent = extent,
                      .per_second = row.throughput() * extent.quota / row.quota_limit(),
                      .run = Duration(row.run_ns())});
}

// The longest run for whose share of the SMs the function leaves the choice to the autoscaler; zero: its share is fixed. Half of
// the deadline is left to wait for the request before it.
Duration LongestRunOf(const proto::FunctionRecord& record) {
  const auto& share = *proto::FindSharingField("sm_partition");
  const bool chosen = proto::Declared(record.sharing(), share) == proto::kLeftToManager;
  return chosen ? Duration(record.slo().deadline_ns()) / 2 : Duration();
}

// The rows of the shares that instances may have.
std::vector<const proto::ProfileRow*> RowsFor(const proto::FunctionRecord& record,
                                              const proto::FunctionProfile& profile) {
  const auto own = proto::SmPercentOf(record.sharing());
  const Duration longest = LongestRunOf(record);
  return RowsOfLargestQuota(profile, [&](const proto::ProfileRow& row) {
    const bool in_time = row.run_ns() > 0 && Duration(row.run_ns()) <= longest;
    return row.batch() == 1 && row.throughput() > 0 && row.quota_limit() > 0 &&
           (row.sm_partition() == own || in_time);
  });
}

}  // namespace

std::string InstanceNameOf(const FunctionVersion& function) {
  return absl::StrCat(function.first, "/", function.second);
}

Bytes WeightsOf(const proto::FunctionRecord& record) {
  return Bytes(std::max(record.weights_bytes(), record.sharing().gpu_mem()));
}

ScaledFunction ScaledFunctionOf(const proto::FunctionRecord& record, const ProfileRegistry& profiles,
                                const GpuKinds& kinds) {
  ScaledFunction function;
  function.name = InstanceNameOf(VersionOf(record.key()));
  const std::uint32_t declared = record.sharing().max_instances();
  function.limits.max_instances = declared == 0 ? kMostScaledInstances : declared;
  function.limits.min_instances = record.sharing().min_instances();
  const std::uint64_t utilisation = record.sharing().target_utilisation();
  function.limits.target_utilisation =
      static_cast<double>(utilisation == 0 ? kDefaultUtilisation : utilisation) / 100;
  function.weights = WeightsOf(record);
  const double percentile = record.slo().percentile() > 0 ? record.slo().percentile() : kDefaultSloPercentile;
  function.late_allowed = std::max(1 - percentile / 100, kLeastLateAllowed);
  proto::FunctionProfile like;
  like.set_model_digest(record.model_digest());
  like.set_precision(record.precision());
  for (const std::string& kind : kinds) {
    function.kinds.push_back(kind);
    like.set_gpu_kind(kind);
    const auto* profile = profiles.Find(like);
    if (profile == nullptr) continue;
    std::vector<ScalePoint> points;
    for (const auto* row : RowsFor(record, *profile)) AddPoints(*row, record.sharing(), points);
    if (!points.empty()) function.points[kind] = std::move(points);
  }
  std::set<Extent> extents;
  for (const auto& [kind, points] : function.points)
    for (const ScalePoint& point : points) extents.insert(point.extent);
  function.extents = extents.empty() ? ExtentsOn(proto::SmPercentOf(record.sharing()), record.sharing())
                                     : std::vector<Extent>(extents.begin(), extents.end());
  return function;
}

}  // namespace troupe::cluster
