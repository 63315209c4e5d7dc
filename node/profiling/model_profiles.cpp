#include "node/profiling/model_profiles.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"
#include "proto/gpu_instances.hpp"

namespace troupe::node {

void ModelProfiles::Learn(const proto::ClusterUpdate& update) {
  std::set<std::string> changed;
  if (update.snapshot()) changed = told_;
  for (const auto& profile : update.profiles())
    if (parts_.kinds.Find(profile.gpu_kind())) changed.insert(profile.model_digest());
  if (!parts_.membership.view().profiles().empty())
    for (const auto& function : update.functions()) changed.insert(function.model_digest());
  for (const auto& digest : changed) Tell(digest);
}

void ModelProfiles::Tell(const std::string& digest) {
  const auto& functions = parts_.membership.view().functions();
  const auto use = functions.models().find(digest);
  ByKind<std::uint32_t> most;
  ByKind<Duration> runs;
  if (use != functions.models().end()) {
    for (const auto& [name, version] : use->second.functions) {
      proto::FunctionKey key;
      key.set_name(name);
      key.set_version(absl::StrCat(version));
      const auto* function = functions.Find(key);
      if (function == nullptr) continue;
      const auto share = proto::SmPercentOf(function->sharing());
      const auto profiled = RunTimesOf(*function, 1);
      for (KindId kind = 0; kind < profiled.size(); ++kind) {
        if (share <= most.At(kind) || profiled[kind] == Duration::zero()) continue;
        most.At(kind) = share;
        runs.At(kind) = profiled[kind];
      }
    }
  }
  told_.erase(digest);
  for (KindId kind = 0; kind < parts_.kinds.size(); ++kind) {
    parts_.scheduler.SetProfiled(digest, runs.At(kind), kind);
    if (runs.At(kind) > Duration::zero()) told_.insert(digest);
  }
}

ProfiledRuns ModelProfiles::RunTimesOf(const proto::FunctionRecord& function, std::uint32_t batch) const {
  const auto& profiles = parts_.membership.view().profiles();
  ProfiledRuns runs;
  if (profiles.empty()) return runs;
  for (KindId kind = 0; kind < parts_.kinds.size(); ++kind)
    runs.push_back(profiles.RunTime(function, batch, parts_.kinds.NameOf(kind)));
  const bool known = std::ranges::any_of(runs, [](Duration run) { return run > Duration::zero(); });
  if (!known) runs.clear();
  return runs;
}

ProfiledRuns ModelProfiles::RunTimesOf(const proto::FunctionRecord& function,
                                       const proto::SubmitRequest& request) const {
  if (parts_.membership.view().profiles().empty()) return {};
  return RunTimesOf(function, cluster::BatchOf(function, request.inputs()));
}

}  // namespace troupe::node
