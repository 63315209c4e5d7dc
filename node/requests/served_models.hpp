// SERVED MODELS: the models that requests may come for at this node, as routers are told of them: by digest,
// in order, each once however many copies it has here.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
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
    if (++copies_[copy->digest] > 1) return;
    ++revision_;
    added_.push_back(copy->digest);
    if (added_.size() > kMostAdded) added_.pop_front();
  }
  void Remove(const ModelNumber& copy) {
    const auto it = copies_.find(copy->digest);
    TROUPE_CHECK(it != copies_.end(), "a model is served no more that never was");
    if (--it->second > 0) return;
    copies_.erase(it);
    ++revision_;
    added_.clear();
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
  // date; what came since; else everything.
  [[nodiscard]] std::optional<proto::ModelList> Since(std::uint64_t revision) const {
    if (revision == revision_) return std::nullopt;
    proto::ModelList told;
    const auto came = revision_ - revision;
    if (revision == 0 || came > added_.size()) {
      *told.mutable_digests() = list();
      return told;
    }
    told.set_added(true);
    for (auto it = added_.end() - static_cast<std::ptrdiff_t>(came); it != added_.end(); ++it)
      told.add_digests(it->text());
    return told;
  }

 private:
  static constexpr std::size_t kMostAdded = 1024;
  absl::flat_hash_map<DigestNumber, std::uint32_t> copies_;
  std::uint64_t revision_ = 1;
  std::deque<DigestNumber> added_;  // with each of the last revisions; none was a removal
};

}  // namespace troupe::node
