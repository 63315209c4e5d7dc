#include "cluster/profiled_runs.hpp"

#include <algorithm>
#include <utility>

#include "proto/gpu_instances.hpp"
#include "proto/open_dimension.hpp"

namespace troupe::cluster {

void AddGpuKinds(const proto::MemberRecord& member, GpuKinds& kinds) {
  if (member.kind() != proto::MEMBER_NODE || member.state() == proto::MEMBER_LEFT) return;
  for (const auto& gpu : member.gpus()) kinds.insert(gpu.kind());
}

std::uint32_t BatchOf(const proto::FunctionRecord& function,
                      const google::protobuf::RepeatedPtrField<proto::Tensor>& inputs) {
  constexpr std::int64_t kMost = 1 << 20;
  for (const auto& spec : function.inputs()) {
    if (!proto::LeadingIsOpen(spec)) continue;
    std::int64_t rows = 0;  // of all its parts
    for (const auto& input : inputs)
      if (input.spec().name() == spec.name() && !input.spec().shape().empty() && input.spec().shape(0) > 0)
        rows = std::min(rows + std::min(input.spec().shape(0), kMost), kMost);
    if (rows > 0) return static_cast<std::uint32_t>(rows);
  }
  return 1;
}

std::vector<const proto::ProfileRow*> RowsOfLargestQuota(
    const proto::FunctionProfile& profile, absl::FunctionRef<bool(const proto::ProfileRow&)> counts) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, const proto::ProfileRow*> rows;
  for (const auto& row : profile.rows()) {
    if (row.state() == proto::PROFILE_ROW_FAILED || !counts(row)) continue;
    const proto::ProfileRow*& largest = rows[{row.batch(), row.sm_partition()}];
    if (largest == nullptr || row.quota_limit() >= largest->quota_limit()) largest = &row;
  }
  std::vector<const proto::ProfileRow*> out;
  for (const auto& [point, row] : rows) out.push_back(row);
  return out;
}

void ProfiledRuns::Apply(const proto::ClusterUpdate& update) {
  if (update.snapshot()) profiles_.clear();
  for (const auto& profile : update.profiles()) Keep(profile);
}

void ProfiledRuns::Keep(const proto::FunctionProfile& profile) {
  RunProfile runs;
  // The time of a run does not depend on the quota; the figures of the largest one are taken.
  const auto counts = [](const proto::ProfileRow& row) { return row.run_ns() > 0; };
  for (const auto* row : RowsOfLargestQuota(profile, counts))
    runs.Add(row->sm_partition(), row->batch(), Duration(row->run_ns()));
  const Key key{profile.model_digest(), profile.precision(), profile.gpu_kind()};
  if (runs.empty()) {
    profiles_.erase(key);
    return;
  }
  profiles_[key] = {std::make_shared<const RunProfile>(std::move(runs)), profile.revision()};
  if (profiles_.size() <= kMost) return;
  profiles_.erase(
      std::ranges::min_element(profiles_, {}, [](const auto& one) { return one.second.revision; }));
}

Duration ProfiledRuns::RunTime(const proto::FunctionRecord& function, std::uint32_t batch,
                               const std::string& kind) const {
  const auto it = profiles_.find({function.model_digest(), function.precision(), kind});
  if (it == profiles_.end()) return {};
  return it->second.runs->RunTime(proto::SmPercentOf(function.sharing()), batch).value_or(Duration::zero());
}

ProfiledRun ProfiledRuns::RunOn(const proto::FunctionRecord& function, std::uint32_t batch,
                                const GpuKinds& kinds) const {
  ProfiledRun run;
  bool all = true;
  for (const auto& kind : kinds) {
    const auto time = RunTime(function, batch, kind);
    if (time == Duration::zero()) {
      all = false;
      continue;
    }
    if (kinds.size() > 1) run.by_kind.emplace(kind, time);
    run.shortest = run.shortest == Duration::zero() ? time : std::min(run.shortest, time);
  }
  if (!all) run.shortest = Duration::zero();
  return run;
}

}  // namespace troupe::cluster
