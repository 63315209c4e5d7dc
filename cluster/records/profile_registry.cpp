#include "cluster/records/profile_registry.hpp"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

std::string ProfileRegistry::NameOf(const proto::FunctionProfile& profile) {
  return absl::StrCat(profile.model_digest(), "/", static_cast<int>(profile.precision()), "/",
                      profile.gpu_kind());
}

void ProfileRegistry::Load(proto::FunctionProfile profile, std::uint64_t revision) {
  profile.set_revision(revision);
  profiles_[NameOf(profile)] = std::move(profile);
}

void ProfileRegistry::Apply(const proto::KeepProfile& command, const FunctionTable& functions,
                            std::uint64_t revision) {
  if (command.has_experiment()) Apply(command.experiment());
  if (!command.has_profile()) return;
  if (const auto* oldest = GivesWayTo(command.profile(), functions)) profiles_.erase(NameOf(*oldest));
  Load(command.profile(), revision);
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
