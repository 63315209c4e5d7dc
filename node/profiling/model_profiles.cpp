#include "node/profiling/model_profiles.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"
#include "proto/gpu_instances.hpp"

namespace troupe::node {

std::string ModelProfiles::OurKind() const {
  const auto& gpus = parts_.settings.gpus;
  if (gpus.empty()) return {};
  const auto& kind = gpus.front().kind;
  return std::ranges::all_of(gpus, [&](const auto& gpu) { return gpu.kind == kind; }) ? kind : std::string();
}

void ModelProfiles::Learn(const proto::ClusterUpdate& update) {
  std::set<std::string> changed;
  if (update.snapshot()) changed = told_;
  const auto kind = OurKind();
  for (const auto& profile : update.profiles())
    if (profile.gpu_kind() == kind) changed.insert(profile.model_digest());
  if (!parts_.membership.view().profiles().empty())
    for (const auto& function : update.functions()) changed.insert(function.model_digest());
  for (const auto& digest : changed) Tell(digest);
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
  if (run > Duration::zero())
    told_.insert(digest);
  else
    told_.erase(digest);
}

Duration ModelProfiles::RunTimeOf(const proto::FunctionRecord& function, std::uint32_t batch) const {
  return parts_.membership.view().profiles().RunTime(function, batch, OurKind());
}

Duration ModelProfiles::RunTimeOf(const proto::FunctionRecord& function,
                                  const proto::SubmitRequest& request) const {
  if (parts_.membership.view().profiles().empty()) return {};
  return RunTimeOf(function, cluster::BatchOf(function, request.inputs()));
}

}  // namespace troupe::node
