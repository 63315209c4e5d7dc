// Constants with equal bytes, which lie among a model's weights once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace troupe::gpu {

// Numbers distinct contents, from 0 in the order in which they come. It refers to the bytes and does not own them.
class DistinctContents {
 public:
  // The number of these bytes, which is size() before the call if no equal ones came before.
  std::size_t Add(std::string_view bytes) {
    // The standard's view would be hashed by the standard's hash, which is as slow as a digest.
    auto& alike = by_hash_[absl::HashOf(absl::string_view(bytes.data(), bytes.size()))];
    const auto same =
        std::ranges::find_if(alike, [&](std::size_t number) { return contents_[number] == bytes; });
    if (same != alike.end()) return *same;
    alike.push_back(contents_.size());
    contents_.push_back(bytes);
    return contents_.size() - 1;
  }
  [[nodiscard]] std::size_t size() const { return contents_.size(); }

 private:
  std::vector<std::string_view> contents_;
  absl::flat_hash_map<std::size_t, std::vector<std::size_t>> by_hash_;
};

}  // namespace troupe::gpu
