// The name of a sequence of requests (proto/request.proto): part of the name of a file, so it is short and plain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace troupe::proto {

inline constexpr std::size_t kLongestSequenceId = 64;

[[nodiscard]] inline bool IsSequenceId(std::string_view id) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  return !id.empty() && id.size() <= kLongestSequenceId && std::all_of(id.begin(), id.end(), plain);
}

}  // namespace troupe::proto
