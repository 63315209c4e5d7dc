#include "cluster/function_table.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/gpu_sharing.hpp"

namespace troupe::cluster {

std::string Describe(const proto::FunctionKey& key) {
  if (key.version().empty()) return absl::StrCat("function '", key.name(), "'");
  return absl::StrCat("function '", key.name(), "' version ", key.version());
}

namespace {
constexpr std::size_t kVersionDigits = 18;  // of any such number there is a next one

void Insert(std::vector<FunctionVersion>& sorted, const FunctionVersion& version) {
  const auto at = std::ranges::lower_bound(sorted, version);
  if (at == sorted.end() || *at != version) sorted.insert(at, version);
}
}  // namespace

std::uint64_t VersionNumber(const std::string& version) {
  if (version.empty() || version.front() == '0' || version.size() > kVersionDigits) return 0;
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(version.data(), version.data() + version.size(), number);
  return error == std::errc() && rest == version.data() + version.size() ? number : 0;
}

absl::StatusOr<std::string> ChooseVersion(const std::string& wish, std::uint64_t newest) {
  if (!wish.empty()) {
    if (VersionNumber(wish) != 0) return wish;
    return absl::InvalidArgumentError(
        absl::StrCat("'", wish, "' is not a valid version; versions are 1, 2, 3 ... with ", kVersionDigits,
                     " digits at most, or none for the next one"));
  }
  auto next = absl::StrCat(newest + 1);
  if (VersionNumber(next) != 0) return next;
  return absl::ResourceExhaustedError(
      absl::StrCat("there is no version after ", newest, "; name a free one, or remove that one first"));
}

FunctionVersion VersionOf(const proto::FunctionKey& key) {
  return {key.name(), VersionNumber(key.version())};
}

void FunctionTable::Count(const proto::FunctionRecord& record) {
  ModelUse& use = models_[record.model_digest()];
  Insert(use.functions, VersionOf(record.key()));
  const bool scaled = proto::IsScaled(record.sharing());
  if (scaled) scaled_.insert(VersionOf(record.key()));
  if (scaled && record.sharing().min_instances() > 0) with_minimum_.insert(VersionOf(record.key()));
  if (record.sharing().quota_request() > 0 || record.places_size() > 0)
    owners_.insert(VersionOf(record.key()));
  const bool state = record.state_size() > 0;
  use.loaded += record.loaded() ? 1 : 0;
  use.with_state += state ? 1 : 0;
  use.loaded_with_state += record.loaded() && state ? 1 : 0;
  if (record.share_percent() > 0) ++sharers_[record.key().name()];
  if (record.sharing().automatic_size() > (scaled ? 1 : 0))
    profile_followers_.insert(VersionOf(record.key()));
}

void FunctionTable::Uncount(const proto::FunctionRecord& record) {
  if (record.share_percent() > 0) {
    const auto sharers = sharers_.find(record.key().name());
    if (--sharers->second == 0) sharers_.erase(sharers);
  }
  const auto it = models_.find(record.model_digest());
  ModelUse& use = it->second;
  const FunctionVersion key = VersionOf(record.key());
  profile_followers_.erase(key);
  owners_.erase(key);
  scaled_.erase(key);
  with_minimum_.erase(key);
  std::erase(use.functions, key);
  if (use.functions.empty()) {
    models_.erase(it);
    return;
  }
  const bool state = record.state_size() > 0;
  use.loaded -= record.loaded() ? 1 : 0;
  use.with_state -= state ? 1 : 0;
  use.loaded_with_state -= record.loaded() && state ? 1 : 0;
}

void FunctionTable::Put(const proto::FunctionRecord& record) {
  const auto [it, added] =
      functions_.Of(record.key().name()).try_emplace(VersionNumber(record.key().version()));
  if (!added) Uncount(it->second);
  it->second = record;
  Count(record);
  size_ += added ? 1 : 0;
}

bool FunctionTable::Remove(const proto::FunctionKey& key) {
  if (functions_.Find(key.name()) == nullptr) return false;
  auto& versions = functions_.Of(key.name());
  const auto version = versions.find(VersionNumber(key.version()));
  if (version == versions.end()) return false;
  Uncount(version->second);
  versions.erase(version);
  if (versions.empty()) functions_.Erase(key.name());
  --size_;
  return true;
}

bool FunctionTable::AreShared(const std::string& name) const {
  return sharers_.contains(name);
}

const proto::FunctionRecord& FunctionTable::LargestSharer(const Versions& versions) {
  // A loaded version comes before an unloaded one, then the stable version, then the version with the largest share.
  const auto rank = [](const proto::FunctionRecord& record) {
    return std::tuple(record.share_percent() > 0, record.loaded(), record.role() == proto::VERSION_STABLE,
                      record.share_percent());
  };
  const proto::FunctionRecord* first = &versions.begin()->second;
  for (const auto& [number, record] : versions)
    if (rank(record) > rank(*first)) first = &record;
  return *first;
}

const FunctionTable::Versions* FunctionTable::VersionsOf(const std::string& name) const {
  return functions_.Find(name);
}

std::uint64_t FunctionTable::NewestVersion(const std::string& name) const {
  const Versions* versions = VersionsOf(name);
  return versions == nullptr ? 0 : versions->rbegin()->first;
}

const proto::FunctionRecord* FunctionTable::Find(const proto::FunctionKey& key) const {
  const Versions* versions = VersionsOf(key.name());
  if (versions == nullptr) return nullptr;
  if (!key.version().empty()) {
    const auto it = versions->find(VersionNumber(key.version()));
    return it == versions->end() ? nullptr : &it->second;
  }
  if (AreShared(key.name())) return &LargestSharer(*versions);
  for (auto it = versions->rbegin(); it != versions->rend(); ++it) {
    if (it->second.loaded()) return &it->second;
  }
  return &versions->rbegin()->second;
}

absl::StatusOr<const proto::FunctionRecord*> FunctionTable::FindServed(const proto::FunctionKey& key) const {
  const proto::FunctionRecord* record = Find(key);
  if (record == nullptr) {
    const Versions* versions = VersionsOf(key.name());
    if (versions == nullptr) {
      return absl::NotFoundError(absl::StrCat("there is no function '", key.name(), "'; deploy it first"));
    }
    std::vector<std::uint64_t> numbers;
    for (const auto& [number, other] : *versions) numbers.push_back(number);
    return absl::NotFoundError(
        absl::StrCat("there is no ", Describe(key), "; its versions are ", absl::StrJoin(numbers, ", ")));
  }
  if (!record->loaded()) {
    return absl::UnavailableError(
        absl::StrCat(Describe(record->key()), " is unloaded; serve it again with: troupe function load ",
                     key.name(), ", or POST /v2/repository/models/", key.name(), "/load"));
  }
  return record;
}

std::uint32_t FunctionTable::UsesOf(const std::string& model_digest) const {
  const auto it = models_.find(model_digest);
  return it == models_.end() ? 0 : static_cast<std::uint32_t>(it->second.functions.size());
}

const proto::FunctionRecord* FunctionTable::UserOf(const std::string& model_digest) const {
  const auto it = models_.find(model_digest);
  if (it == models_.end()) return nullptr;
  return &At(*it->second.functions.begin());
}

void FunctionTable::Show(const FunctionVersion& version, See see) const {
  functions_.ForEachOf(version.first, [&](const proto::FunctionRecord& record) {
    if (VersionNumber(record.key().version()) == version.second) see(record);
  });
}

void FunctionTable::ShowLoadedUserOf(const std::string& model_digest, See see) const {
  const auto it = models_.find(model_digest);
  if (it == models_.end() || it->second.loaded == 0) return;
  bool found = false;
  for (const FunctionVersion& version : it->second.functions) {
    Show(version, [&](const proto::FunctionRecord& record) {
      if (!record.loaded()) return;
      found = true;
      see(record);
    });
    if (found) return;
  }
}

}  // namespace troupe::cluster
