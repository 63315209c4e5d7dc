#include "cluster/function_records.hpp"

#include <utility>

#include "base/check.hpp"
#include "cluster/function_table.hpp"

namespace troupe::cluster {

std::string FunctionRecords::Fold(Versions versions) {
  proto::ClusterUpdate records;
  for (auto& [number, record] : versions) *records.add_functions() = std::move(record);
  return records.SerializeAsString();
}

void FunctionRecords::Unfold(const std::string& bytes, proto::ClusterUpdate& records) {
  TROUPE_CHECK(records.ParseFromString(bytes), "a folded function cannot be read");
}

void FunctionRecords::NoteOpen(const std::string& name) const {
  if (most_open_ != kNoBound) opened_.push_back(name);
}

FunctionRecords::Versions& FunctionRecords::Open(Folded::iterator folded) const {
  proto::ClusterUpdate records;
  Unfold(folded->second, records);
  Versions& versions = open_[folded->first];
  for (auto& record : *records.mutable_functions())
    versions.emplace(VersionNumber(record.key().version()), std::move(record));
  NoteOpen(folded->first);
  folded_.erase(folded);
  return versions;
}

const FunctionRecords::Versions* FunctionRecords::Find(const std::string& name) const {
  if (const auto it = open_.find(name); it != open_.end()) return &it->second;
  if (folded_.empty()) return nullptr;
  const auto it = folded_.find(name);
  return it == folded_.end() ? nullptr : &Open(it);
}

FunctionRecords::Versions& FunctionRecords::Of(const std::string& name) {
  if (const auto it = folded_.find(name); it != folded_.end()) return Open(it);
  const auto [it, added] = open_.try_emplace(name);
  if (added) NoteOpen(name);
  return it->second;
}

void FunctionRecords::Erase(const std::string& name) {
  open_.erase(name);
  folded_.erase(name);
}

void FunctionRecords::FoldCold() {
  while (opened_.size() > most_open_) {
    auto cold = open_.extract(opened_.front());
    opened_.pop_front();
    if (!cold.empty()) folded_.emplace(std::move(cold.key()), Fold(std::move(cold.mapped())));
  }
}

void FunctionRecords::Walk(
    const std::string& after, absl::FunctionRef<bool(const std::string& name, const Versions&)> open,
    absl::FunctionRef<bool(const std::string& name, const std::string& bytes)> folded) const {
  auto next_open = open_.upper_bound(after);
  auto next_folded = folded_.upper_bound(after);
  bool go_on = true;
  while (go_on && (next_open != open_.end() || next_folded != folded_.end())) {
    if (next_folded == folded_.end() || (next_open != open_.end() && next_open->first < next_folded->first)) {
      go_on = open(next_open->first, next_open->second);
      ++next_open;
    } else {
      go_on = folded(next_folded->first, next_folded->second);
      ++next_folded;
    }
  }
}

void FunctionRecords::ForEach(See see) const {
  proto::ClusterUpdate records;  // one for all, so that its memory is used again
  Walk(
      "",
      [&](const std::string&, const Versions& versions) {
        for (const auto& [number, record] : versions) see(record);
        return true;
      },
      [&](const std::string&, const std::string& bytes) {
        Unfold(bytes, records);
        for (const auto& record : records.functions()) see(record);
        return true;
      });
}

void FunctionRecords::ForEachOf(const std::string& name, See see) const {
  if (const auto it = open_.find(name); it != open_.end()) {
    for (const auto& [number, record] : it->second) see(record);
  } else if (const auto it = folded_.find(name); it != folded_.end()) {
    proto::ClusterUpdate records;
    Unfold(it->second, records);
    for (const auto& record : records.functions()) see(record);
  }
}

std::string FunctionRecords::AddTo(proto::ClusterUpdate& update, const std::string& after,
                                   std::size_t bytes) const {
  std::string last;
  std::size_t added = 0;
  bool more = false;
  const auto fits = [&](const std::string& name) {
    more = added >= bytes;
    if (!more) last = name;
    return !more;
  };
  Walk(
      after,
      [&](const std::string& name, const Versions& versions) {
        if (!fits(name)) return false;
        for (const auto& [number, record] : versions) {
          *update.add_functions() = record;
          added += record.ByteSizeLong();
        }
        return true;
      },
      [&](const std::string& name, const std::string& folded) {
        if (!fits(name)) return false;
        TROUPE_CHECK(update.MergeFromString(folded), "a folded function cannot be read");
        added += folded.size();
        return true;
      });
  return more ? last : std::string();
}

}  // namespace troupe::cluster
