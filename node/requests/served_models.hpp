// SERVED MODELS: the models that requests may come for at this node, as routers are told of them: by digest,
// in order, each once however many copies it has here.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.hpp"
#include "node/names.hpp"
#include "proto/request.pb.h"

namespace troupe::node {

class ServedModels {
 public:
  using List = google::protobuf::RepeatedPtrField<std::string>;

  void Add(const ModelNumber& copy) {
    if (++copies_[copy->digest] == 1) Note(copy->digest, true);
  }
  void Remove(const ModelNumber& copy) {
    const auto it = copies_.find(copy->digest);
    TROUPE_CHECK(it != copies_.end(), "a model is served no more that never was");
    if (--it->second > 0) return;
    copies_.erase(it);
    Note(copy->digest, false);
  }
  [[nodiscard]] std::uint64_t revision() const { return revision_; }  // counts up with each change
  [[nodiscard]] List list() const {
    std::vector<DigestNumber> digests;
    digests.reserve(copies_.size());
    for (const auto& [digest, copies] : copies_) digests.push_back(digest);
    std::ranges::sort(digests, {}, &DigestNumber::text);
    List list;
    list.Reserve(static_cast<int>(digests.size()));
    for (const auto& digest : digests) *list.Add() = digest.text();
    return list;
  }
  // What a grant says to a router that was told last at `revision`, 0 for never: nothing when it is up to
  // date; what came and went since; else everything.
  [[nodiscard]] std::optional<proto::ModelList> Since(std::uint64_t revision) const {
    if (revision == revision_) return std::nullopt;
    proto::ModelList told;
    const auto changes = revision_ - revision;
    if (revision == 0 || changes > changed_.size()) {
      *told.mutable_digests() = list();
      return told;
    }
    told.set_added(true);
    // A model that came and went again is told once, as it is now.
    std::map<std::string_view, bool> is_there;
    for (auto it = changed_.end() - static_cast<std::ptrdiff_t>(changes); it != changed_.end(); ++it)
      is_there[it->digest] = it->came;
    for (const auto& [digest, there] : is_there)
      (there ? *told.add_digests() : *told.add_removed()) = std::string(digest);
    return told;
  }

 private:
  static constexpr std::size_t kMostChanges = 1024;
  // A text, since a model that has gone keeps no number.
  struct Change {
    std::string digest{};
    bool came = false;  // else it went
  };
  void Note(const DigestNumber& digest, bool came) {
    ++revision_;
    changed_.push_back({digest.text(), came});
    if (changed_.size() > kMostChanges) changed_.pop_front();
  }

  absl::flat_hash_map<DigestNumber, std::uint32_t> copies_;
  std::uint64_t revision_ = 1;
  std::deque<Change> changed_;  // one with each of the last revisions
};

}  // namespace troupe::node
