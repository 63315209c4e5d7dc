#include "node/profiling/model_profiles.hpp"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"
#include "proto/gpu_instances.hpp"
#include "proto/open_dimension.hpp"

namespace troupe::node {

namespace {

// The open leading dimension of its inputs; a function without one answers one request by each run.
std::uint32_t BatchOf(const proto::FunctionRecord& function, const proto::SubmitRequest& request) {
  for (const auto& spec : function.inputs()) {
    if (!proto::LeadingIsOpen(spec)) continue;
    for (const auto& input : request.inputs())
      if (input.spec().name() == spec.name() && !input.spec().shape().empty() && input.spec().shape(0) > 0)
        return static_cast<std::uint32_t>(std::min<std::int64_t>(input.spec().shape(0), 1 << 20));
  }
  return 1;
}

}  // namespace

bool ModelProfiles::IsOfOurKind(const std::string& kind) const {
  return std::ranges::all_of(parts_.settings.gpus, [&](const auto& gpu) { return gpu.kind == kind; });
}

void ModelProfiles::Learn(const proto::ClusterUpdate& update) {
  std::set<std::string> changed;
  if (update.snapshot()) {
    for (const auto& [key, profile] : profiles_) changed.insert(key.first);
    profiles_.clear();
  }
  for (const auto& profile : update.profiles()) {
    if (!IsOfOurKind(profile.gpu_kind())) continue;
    Keep(profile);
    changed.insert(profile.model_digest());
  }
  for (const auto& function : update.functions())
    if (profiles_.contains({function.model_digest(), function.precision()}))
      changed.insert(function.model_digest());
  for (const auto& digest : changed) Tell(digest);
}

void ModelProfiles::Keep(const proto::FunctionProfile& profile) {
  RunProfile kept;
  // The time of a run does not depend on the quota; the figures of the largest one are taken.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> quotas;
  for (const auto& row : profile.rows()) {
    if (row.state() == proto::PROFILE_ROW_FAILED || row.run_ns() <= 0) continue;
    auto& quota = quotas[{row.sm_partition(), row.batch()}];
    if (row.quota_limit() < quota) continue;
    quota = row.quota_limit();
    kept.Add(row.sm_partition(), row.batch(), Duration(row.run_ns()));
  }
  const Key key{profile.model_digest(), profile.precision()};
  if (kept.empty())
    profiles_.erase(key);
  else
    profiles_[key] = std::move(kept);
}

void ModelProfiles::Tell(const std::string& digest) {
  const auto& functions = parts_.membership.view().functions();
  const auto use = functions.models().find(digest);
  Duration run{};
  if (use != functions.models().end()) {
    std::uint32_t most = 0;
    for (const auto& [name, version] : use->second.functions) {
      proto::FunctionKey key;
      key.set_name(name);
      key.set_version(absl::StrCat(version));
      const auto* function = functions.Find(key);
      if (function == nullptr) continue;
      const auto share = proto::SmPercentOf(function->sharing());
      if (share <= most) continue;
      const auto profiled = RunTimeOf(*function, 1);
      if (profiled == Duration::zero()) continue;
      most = share;
      run = profiled;
    }
  }
  parts_.scheduler.SetProfiled(digest, run);
}

Duration ModelProfiles::RunTimeOf(const proto::FunctionRecord& function, std::uint32_t batch) const {
  const auto it = profiles_.find({function.model_digest(), function.precision()});
  if (it == profiles_.end()) return {};
  return it->second.RunTime(proto::SmPercentOf(function.sharing()), batch).value_or(Duration::zero());
}

Duration ModelProfiles::RunTimeOf(const proto::FunctionRecord& function,
                                  const proto::SubmitRequest& request) const {
  return profiles_.empty() ? Duration::zero() : RunTimeOf(function, BatchOf(function, request));
}

}  // namespace troupe::node
