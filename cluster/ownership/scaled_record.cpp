#include "cluster/ownership/scaled_record.hpp"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/function_sharing.hpp"
#include "proto/gpu_instances.hpp"
#include "scheduling/slo_count.hpp"

namespace troupe::cluster {

namespace {

// Also of a function that declares that none may be late.
constexpr double kLeastLateAllowed = 0.001;

std::vector<Extent> ExtentsOf(const proto::GpuSharing& sharing) {
  const std::uint32_t limit = sharing.quota_limit() == 0 ? kWholeGpu : sharing.quota_limit();
  std::vector<Extent> extents;
  for (std::uint32_t quota = kQuotaStep; quota < limit; quota += kQuotaStep)
    extents.push_back({.quota = quota, .sms = proto::SmPercentOf(sharing)});
  extents.push_back({.quota = limit, .sms = proto::SmPercentOf(sharing)});
  return extents;
}

// The row of the function's share with the largest quota; null: the profile has none.
const proto::ProfileRow* RowFor(const proto::FunctionProfile& profile, std::uint32_t share) {
  const proto::ProfileRow* best = nullptr;
  for (const auto& row : profile.rows()) {
    const bool counts = row.state() != proto::PROFILE_ROW_FAILED && row.sm_partition() == share &&
                        row.batch() == 1 && row.throughput() > 0 && row.quota_limit() > 0;
    if (counts && (best == nullptr || row.quota_limit() > best->quota_limit())) best = &row;
  }
  return best;
}

// Throughput grows in proportion to the time.
std::vector<ScalePoint> PointsOf(const proto::ProfileRow& row, const std::vector<Extent>& extents) {
  std::vector<ScalePoint> points;
  for (const Extent& extent : extents)
    points.push_back({.extent = extent,
                      .per_second = row.throughput() * extent.quota / row.quota_limit(),
                      .run = Duration(row.run_ns())});
  return points;
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
  function.extents = ExtentsOf(record.sharing());
  const double percentile = record.slo().percentile() > 0 ? record.slo().percentile() : kDefaultSloPercentile;
  function.late_allowed = std::max(1 - percentile / 100, kLeastLateAllowed);
  proto::FunctionProfile like;
  like.set_model_digest(record.model_digest());
  like.set_precision(record.precision());
  for (const std::string& kind : kinds) {
    function.kinds.push_back(kind);
    like.set_gpu_kind(kind);
    const auto* profile = profiles.Find(like);
    const auto* row = profile == nullptr ? nullptr : RowFor(*profile, proto::SmPercentOf(record.sharing()));
    if (row != nullptr) function.points[kind] = PointsOf(*row, function.extents);
  }
  return function;
}

}  // namespace troupe::cluster
