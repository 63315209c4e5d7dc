// PROFILE REGISTRY: the profiles that were measured or imported, by model digest, precision and kind of GPU, and the
// experiments. Changed only by applying commands.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/function_table.hpp"
#include "proto/function_profile.pb.h"

namespace troupe::cluster {

class ProfileRegistry {
 public:
  // Beyond so many the profile that changed least lately, of a model that no function uses, gives way to a new one.
  static constexpr std::size_t kMostProfiles = 1000;
  static constexpr std::size_t kMostEnded = 100;  // experiments that have ended; the oldest are forgotten
  static constexpr std::size_t kMostGone = 1000;  // profiles that members are still told are gone; likewise

  // Where the profile lies: "DIGEST/PRECISION/KIND".
  [[nodiscard]] static std::string NameOf(const proto::FunctionProfile& profile);

  // As the store has it.
  void Load(proto::FunctionProfile profile, std::uint64_t revision);
  void Apply(const proto::KeepProfile& command, const FunctionTable& functions, std::uint64_t revision);
  void Apply(const proto::DropProfile& command, std::uint64_t revision);
  void Apply(const proto::ProfilingExperiment& experiment);

  // Null: there is none with its digest, precision and kind.
  [[nodiscard]] const proto::FunctionProfile* Find(const proto::FunctionProfile& like) const;
  [[nodiscard]] bool IsFullFor(const proto::FunctionProfile& profile, const FunctionTable& functions) const;
  // The profile that makes room for a new one; null: none has to, or none can.
  [[nodiscard]] const proto::FunctionProfile* GivesWayTo(const proto::FunctionProfile& profile,
                                                         const FunctionTable& functions) const;
  // The experiments that are forgotten when this one has ended.
  [[nodiscard]] std::vector<std::uint64_t> SurplusBeside(const proto::ProfilingExperiment& experiment) const;
  [[nodiscard]] std::uint64_t NextNumber() const {
    return experiments_.empty() ? 1 : experiments_.rbegin()->first + 1;
  }

  [[nodiscard]] const std::map<std::string, proto::FunctionProfile>& profiles() const { return profiles_; }
  // Profiles that were removed in this life of the manager, without rows.
  [[nodiscard]] const std::map<std::string, proto::FunctionProfile>& gone() const { return gone_; }
  [[nodiscard]] const std::map<std::uint64_t, proto::ProfilingExperiment>& experiments() const {
    return experiments_;
  }
  // Of the last change of a profile; 0: there was none.
  [[nodiscard]] std::uint64_t revision() const { return revision_; }

 private:
  void Drop(const proto::FunctionProfile& like, std::uint64_t revision);

  std::map<std::string, proto::FunctionProfile> profiles_;
  std::map<std::string, proto::FunctionProfile> gone_;
  std::uint64_t revision_ = 0;
  std::map<std::uint64_t, proto::ProfilingExperiment> experiments_;
};

}  // namespace troupe::cluster
