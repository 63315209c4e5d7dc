#include "cluster/profiling/profiled_sharing.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/gpu_instances.hpp"
#include "proto/gpu_sharing.hpp"
#include "proto/precision.hpp"
#include "scheduling/run_profile.hpp"

namespace troupe::cluster {

namespace {

constexpr std::string_view kShare = "sm_partition", kBatch = "max_batch", kMemory = "gpu_mem";
constexpr std::uint32_t kAllSms = 100;

bool IsLeft(const proto::GpuSharing& sharing, std::string_view setting) {
  return proto::Declared(sharing, *proto::FindSharingField(setting)) == proto::kLeftToManager;
}

// What one profile says: requests per second, as if the whole window were the function's, and memory of a run.
class Figures {
 public:
  explicit Figures(const proto::FunctionProfile& profile) {
    for (const auto& row : profile.rows()) Take(row);
    const auto counts = [](const proto::ProfileRow& row) {
      return row.throughput() > 0 && row.quota_limit() > 0;
    };
    for (const auto* row : RowsOfLargestQuota(profile, counts)) {
      const double whole = row->throughput() * 100 / row->quota_limit();
      by_batch_[row->batch()][row->sm_partition()] = whole;
      loops_.Add(row->sm_partition(), row->batch(), FromSeconds(row->batch() / whole));
    }
  }

  // Nothing: one batch alone was measured.
  [[nodiscard]] std::optional<std::uint32_t> SaturatingBatch(std::uint32_t share) const {
    if (by_batch_.size() < 2) return std::nullopt;
    std::map<std::uint32_t, double> at_share;
    for (const auto& [batch, shares] : by_batch_)
      if (const auto loop = loops_.RunTime(share, batch)) at_share[batch] = batch / ToSeconds(*loop);
    return at_share.empty() ? std::nullopt : std::optional(Saturation(at_share));
  }
  // Nothing: all SMs and a smaller share were not measured both, with any batch.
  [[nodiscard]] std::optional<std::uint32_t> SaturatingShare(std::uint64_t most_batch) const {
    std::optional<std::uint32_t> share;
    for (const auto& [batch, shares] : by_batch_) {
      const auto measured = measured_.find(batch);
      if (measured == measured_.end() || measured->second.size() < 2 || !shares.contains(kAllSms)) continue;
      if (share && batch > most_batch) break;
      share = std::max(share.value_or(0), Saturation(shares));
    }
    return share;
  }
  // The memory of a run that answers `batch` requests. A run of more requests takes no less, so the smallest batch that was
  // measured and is large enough stands for it. Nothing: all measured batches are smaller.
  [[nodiscard]] std::optional<std::uint64_t> RunBytes(std::uint32_t batch) const {
    const auto found = run_bytes_.lower_bound(batch);
    return found == run_bytes_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  using Curve = std::map<std::uint32_t, double>;  // by share, or by batch
  void Take(const proto::ProfileRow& row) {
    if (row.run_bytes() > 0) run_bytes_[row.batch()] = std::max(run_bytes_[row.batch()], row.run_bytes());
    if (row.state() == proto::PROFILE_ROW_MEASURED) measured_[row.batch()].insert(row.sm_partition());
  }
  [[nodiscard]] static std::uint32_t Saturation(const Curve& curve) {
    double best = 0;
    for (const auto& [at, throughput] : curve) best = std::max(best, throughput);
    const auto first = std::ranges::find_if(
        curve, [&](const auto& point) { return point.second >= (1 - kSaturationTolerance) * best; });
    return first->first;
  }

  std::map<std::uint32_t, std::set<std::uint32_t>>
      measured_;  // shares with a trial that ended well, by batch
  std::map<std::uint32_t, Curve> by_batch_;
  std::map<std::uint32_t, std::uint64_t> run_bytes_;  // by batch
  RunProfile loops_;                                  // from the begin of a run to the begin of the next
};

// By kind, of every kind in the cluster.
using Measured = std::map<std::string, Figures>;

// Why not every kind has a profile; "": each has one.
std::string WhatLacks(const Measured& measured, const std::vector<std::string>& others,
                      const proto::FunctionRecord& record, const GpuKinds& kinds) {
  if (kinds.empty()) return "no node with a GPU has joined the cluster";
  std::vector<std::string> lacking;
  for (const auto& kind : kinds)
    if (!measured.contains(kind)) lacking.push_back(absl::StrCat("'", kind, "'"));
  if (lacking.empty()) return {};
  auto text = absl::StrCat("no profile of its model in ", std::string(proto::Name(record.precision())),
                           " on ", absl::StrJoin(lacking, ", "));
  if (!others.empty()) absl::StrAppend(&text, ", but on ", absl::StrJoin(others, ", "));
  return text;
}

// Of all kinds the value that `before` puts first.
ProfiledValue Careful(const Measured& measured,
                      const std::function<bool(std::uint64_t, std::uint64_t)>& before,
                      const std::function<std::optional<std::uint64_t>(const Figures&)>& value_on,
                      const std::string& meaning, const std::string& lacking) {
  ProfiledValue chosen{.reason = meaning};
  std::vector<std::string> by_kind;
  for (const auto& [kind, figures] : measured) {
    const auto value = value_on(figures);
    if (!value) return {.reason = absl::StrCat("the profile on '", kind, "' has ", lacking)};
    if (chosen.value == 0 || before(*value, chosen.value)) chosen.value = *value;
    by_kind.push_back(
        absl::StrCat("'", kind, "'", measured.size() > 1 ? absl::StrCat(" (", *value, ")") : ""));
  }
  absl::StrAppend(&chosen.reason, " on ", absl::StrJoin(by_kind, ", "));
  return chosen;
}

ProfiledValue BatchFrom(const Measured& measured, const proto::FunctionRecord& record) {
  if (const auto why = WhyUnbatched(record)) return {.reason = *why};
  const auto& sharing = record.sharing();
  const auto share =
      IsLeft(sharing, kShare) || sharing.sm_partition() == 0 ? kAllSms : sharing.sm_partition();
  return Careful(
      measured, std::less<>(), [&](const Figures& on) { return on.SaturatingBatch(share); },
      "the smallest within 3 % of the best throughput", "no batch but one");
}

ProfiledValue ShareFrom(const Measured& measured, const proto::GpuSharing& sharing) {
  const auto batch = std::max<std::uint64_t>(1, sharing.max_batch());
  auto chosen = Careful(
      measured, std::greater<>(), [&](const Figures& on) { return on.SaturatingShare(batch); },
      "the smallest within 3 % of the best throughput", "not both all SMs and a smaller share");
  if (const auto most = MostShare(sharing); chosen.value > most) {
    chosen.reason = absl::StrCat("100 % / ", sharing.max_instances(), " instances; ", chosen.value, " % is ",
                                 chosen.reason);
    chosen.value = most;
  }
  return chosen;
}

// Memory for the weights, for the instances, and for one run more, whose inputs come while they compute.
ProfiledValue MemoryFrom(const Measured& measured, const proto::FunctionRecord& record) {
  const auto instances = proto::InstancesOf(record.sharing(), 0);
  if (instances == 0)
    return {.reason =
                "its instances are as many as each node runs at a time; give sm_partition or max_instances"};
  const auto batch = std::max(1u, record.sharing().max_batch());
  const auto meaning = absl::StrCat("weights and ", instances + 1, " runs of ",
                                    batch == 1 ? "a request" : absl::StrCat(batch, " requests"));
  return Careful(
      measured, std::greater<>(),
      [&](const Figures& on) -> std::optional<std::uint64_t> {
        const auto run = on.RunBytes(batch);
        if (!run) return std::nullopt;
        return record.weights_bytes() + (instances + 1) * *run;
      },
      meaning, absl::StrCat("no memory of a run of ", batch, batch == 1 ? " request" : " requests"));
}

}  // namespace

GpuKinds KindsOf(const MembershipTable& members) {
  GpuKinds kinds;
  for (const auto& [name, member] : members.members()) AddGpuKinds(member.record, kinds);
  return kinds;
}

ProfiledValues ValuesFromProfiles(const proto::FunctionRecord& record, const ProfileRegistry& profiles,
                                  const GpuKinds& kinds) {
  ProfiledValues values;
  // The autoscaler says the others.
  for (const auto name : {kBatch, kShare, kMemory})
    if (IsLeft(record.sharing(), name)) values[std::string(name)];
  if (values.empty()) return values;
  Measured measured;
  std::vector<std::string> others;
  for (const auto& [name, profile] : profiles.profiles()) {
    if (profile.model_digest() != record.model_digest() || profile.precision() != record.precision())
      continue;
    if (kinds.contains(profile.gpu_kind()))
      measured.emplace(profile.gpu_kind(), Figures(profile));
    else
      others.push_back(absl::StrCat("'", profile.gpu_kind(), "'"));
  }
  if (const auto lacking = WhatLacks(measured, others, record, kinds); !lacking.empty()) {
    for (auto& [name, value] : values) value.reason = lacking;
    return values;
  }
  auto filled = record;
  if (const auto batch = values.find(kBatch); batch != values.end()) {
    batch->second = BatchFrom(measured, record);
    filled.mutable_sharing()->set_max_batch(static_cast<std::uint32_t>(batch->second.value));
  }
  if (const auto share = values.find(kShare); share != values.end()) {
    share->second = ShareFrom(measured, filled.sharing());
    filled.mutable_sharing()->set_sm_partition(static_cast<std::uint32_t>(share->second.value));
  }
  if (const auto memory = values.find(kMemory); memory != values.end())
    memory->second = MemoryFrom(measured, filled);
  return values;
}

proto::GpuSharing FilledIn(const proto::GpuSharing& sharing, const ProfiledValues& values) {
  auto filled = sharing;
  for (const auto& [name, value] : values) proto::FindSharingField(name)->set(filled, value.value);
  return filled;
}

}  // namespace troupe::cluster
