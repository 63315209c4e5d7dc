// FUNCTION TABLE: function records by name and version. The manager's registry and every router's copy of it
// are this same table. No validation here: records come from the registry's commands or from a ClusterUpdate.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/function_records.hpp"
#include "proto/function.pb.h"

namespace troupe::cluster {

// "name" or "name version 3".
[[nodiscard]] std::string Describe(const proto::FunctionKey& key);
// The number of a version: decimal, from 1 up, no leading zero; 0 when it is none.
[[nodiscard]] std::uint64_t VersionNumber(const std::string& version);
// The version of something new: the one that is wished for, or with "" the one after `newest`.
// InvalidArgument: it is no version; ResourceExhausted: there is none after it.
[[nodiscard]] absl::StatusOr<std::string> ChooseVersion(const std::string& wish, std::uint64_t newest);

// Name and number of the version.
using FunctionVersion = std::pair<std::string, std::uint64_t>;
[[nodiscard]] FunctionVersion VersionOf(const proto::FunctionKey& key);

// Who uses a model.
struct ModelUse {
  std::vector<FunctionVersion> functions{};  // in order
  std::uint32_t loaded = 0;
  std::uint32_t with_state = 0;  // records that declare state
  std::uint32_t loaded_with_state = 0;
};

class FunctionTable {
 public:
  using Versions = FunctionRecords::Versions;
  using See = FunctionRecords::See;

  // `most_open`: functions beyond it are folded when FoldCold is called (cluster/function_records.hpp).
  explicit FunctionTable(std::size_t most_open = FunctionRecords::kNoBound) : functions_(most_open) {}

  void Put(const proto::FunctionRecord& record);
  bool Remove(const proto::FunctionKey& key);
  // No record that was found before may be used after it.
  void FoldCold() { functions_.FoldCold(); }

  // A key without a version finds the newest loaded version, else the newest one. When versions share the requests
  // that name none, it finds the stable version, else the version with the largest share. Null: the table has none.
  [[nodiscard]] const proto::FunctionRecord* Find(const proto::FunctionKey& key) const;
  // A version that the table has.
  [[nodiscard]] const proto::FunctionRecord& At(const FunctionVersion& version) const {
    return functions_.Find(version.first)->at(version.second);
  }
  // NotFound says what exists; Unavailable for a function that was unloaded.
  [[nodiscard]] absl::StatusOr<const proto::FunctionRecord*> FindServed(const proto::FunctionKey& key) const;
  [[nodiscard]] const Versions* VersionsOf(const std::string& name) const;
  // Whether any version of the function has a share.
  [[nodiscard]] bool AreShared(const std::string& name) const;
  [[nodiscard]] std::uint64_t NewestVersion(const std::string& name) const;  // 0: none
  // These open no folded function, and what they show is valid during the call only. All records in the order of names and
  // versions; that of a version, if the table has it; some loaded record of a model, if there is one.
  void ForEach(See see) const { functions_.ForEach(see); }
  void Show(const FunctionVersion& version, See see) const;
  void ShowLoadedUserOf(const std::string& model_digest, See see) const;
  // As FunctionRecords::AddTo.
  std::string AddTo(proto::ClusterUpdate& update, const std::string& after, std::size_t bytes) const {
    return functions_.AddTo(update, after, bytes);
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  // How many records use a model: its host copies go when none does.
  [[nodiscard]] std::uint32_t UsesOf(const std::string& model_digest) const;
  // Some record of the model; null when there is none.
  [[nodiscard]] const proto::FunctionRecord* UserOf(const std::string& model_digest) const;
  // By digest.
  [[nodiscard]] const std::map<std::string, ModelUse>& models() const { return models_; }
  // Records that request time on a GPU, or own a part of one.
  [[nodiscard]] const std::set<FunctionVersion>& owners() const { return owners_; }
  // Records that leave settings to the profiles of their model (GpuSharing.automatic).
  [[nodiscard]] const std::set<FunctionVersion>& profile_followers() const { return profile_followers_; }
  // Records whose instances follow their load (proto::IsScaled).
  [[nodiscard]] const std::set<FunctionVersion>& scaled() const { return scaled_; }
  // The scaled records that declare min_instances: they have instances without a load, too.
  [[nodiscard]] const std::set<FunctionVersion>& with_minimum() const { return with_minimum_; }

 private:
  void Count(const proto::FunctionRecord& record);
  void Uncount(const proto::FunctionRecord& record);
  [[nodiscard]] static const proto::FunctionRecord& LargestSharer(const Versions& versions);

  FunctionRecords functions_;
  std::map<std::string, ModelUse> models_;
  std::map<std::string, std::uint32_t>
      sharers_;  // by function: how many of its versions have a share; none with 0
  std::set<FunctionVersion> owners_;
  std::set<FunctionVersion> profile_followers_;
  std::set<FunctionVersion> scaled_;
  std::set<FunctionVersion> with_minimum_;
  std::size_t size_ = 0;
};

}  // namespace troupe::cluster
