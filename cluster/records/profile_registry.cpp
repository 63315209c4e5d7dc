#include "cluster/records/profile_registry.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

std::string ProfileRegistry::NameOf(const proto::FunctionProfile& profile) {
  return absl::StrCat(profile.model_digest(), "/", static_cast<int>(profile.precision()), "/",
                      profile.gpu_kind());
}

void ProfileRegistry::Load(proto::FunctionProfile profile, std::uint64_t revision) {
  profile.set_revision(revision);
  revision_ = revision;
  gone_.erase(NameOf(profile));
  profiles_[NameOf(profile)] = std::move(profile);
}

void ProfileRegistry::Drop(const proto::FunctionProfile& like, std::uint64_t revision) {
  proto::FunctionProfile gone;
  gone.set_model_digest(like.model_digest());
  gone.set_gpu_kind(like.gpu_kind());
  gone.set_precision(like.precision());
  gone.set_revision(revision);
  const auto name = NameOf(gone);
  profiles_.erase(name);
  gone_[name] = std::move(gone);
  revision_ = revision;
  if (gone_.size() <= kMostGone) return;
  gone_.erase(std::ranges::min_element(gone_, {}, [](const auto& one) { return one.second.revision(); }));
}

void ProfileRegistry::Apply(const proto::KeepProfile& command, const FunctionTable& functions,
                            std::uint64_t revision) {
  if (command.has_experiment()) Apply(command.experiment());
  if (!command.has_profile()) return;
  if (const auto* oldest = GivesWayTo(command.profile(), functions)) Drop(*oldest, revision);
  Load(command.profile(), revision);
}

void ProfileRegistry::Apply(const proto::DropProfile& command, std::uint64_t revision) {
  Drop(command.profile(), revision);
}

void ProfileRegistry::Apply(const proto::ProfilingExperiment& experiment) {
  for (const auto number : SurplusBeside(experiment)) experiments_.erase(number);
  experiments_[experiment.number()] = experiment;
}

const proto::FunctionProfile* ProfileRegistry::Find(const proto::FunctionProfile& like) const {
  const auto it = profiles_.find(NameOf(like));
  return it == profiles_.end() ? nullptr : &it->second;
}

const proto::FunctionProfile* ProfileRegistry::GivesWayTo(const proto::FunctionProfile& profile,
                                                          const FunctionTable& functions) const {
  if (profiles_.size() < kMostProfiles || Find(profile) != nullptr) return nullptr;
  const proto::FunctionProfile* oldest = nullptr;
  for (const auto& [name, one] : profiles_)
    if (functions.UsesOf(one.model_digest()) == 0 && (oldest == nullptr || one.unix_ns() < oldest->unix_ns()))
      oldest = &one;
  return oldest;
}

bool ProfileRegistry::IsFullFor(const proto::FunctionProfile& profile, const FunctionTable& functions) const {
  return profiles_.size() >= kMostProfiles && Find(profile) == nullptr &&
         GivesWayTo(profile, functions) == nullptr;
}

std::vector<std::uint64_t> ProfileRegistry::SurplusBeside(
    const proto::ProfilingExperiment& experiment) const {
  std::vector<std::uint64_t> ended;
  for (const auto& [number, one] : experiments_)
    if (one.state() != proto::EXPERIMENT_RUNNING && number != experiment.number()) ended.push_back(number);
  if (ended.size() < kMostEnded) return {};
  ended.resize(ended.size() - kMostEnded + 1);
  return ended;
}

}  // namespace troupe::cluster
