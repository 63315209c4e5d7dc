// The members of an inference request that are read, and where a reader of one is: for its errors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "gateway/text.hpp"

namespace troupe::gateway {

using Members = std::span<const std::string_view>;
inline constexpr std::array<std::string_view, 4> kRequestMembers = {"inputs", "outputs", "parameters", "id"};
inline constexpr std::array<std::string_view, 6> kParameters = {
    "timeout", "priority", "binary_data_output", "sequence_id", "sequence_start", "sequence_end"};
inline constexpr std::array<std::string_view, 5> kInputMembers = {"name", "datatype", "shape", "parameters",
                                                                  "data"};
// Of an input or output that lies in shared memory.
inline constexpr std::string_view kSharedRegion = "shared_memory_region";
inline constexpr std::string_view kSharedOffset = "shared_memory_offset";
inline constexpr std::string_view kSharedSize = "shared_memory_byte_size";
inline constexpr std::array<std::string_view, 4> kInputParameters = {"binary_data_size", kSharedRegion,
                                                                     kSharedOffset, kSharedSize};
inline constexpr std::array<std::string_view, 2> kOutputMembers = {"name", "parameters"};
inline constexpr std::array<std::string_view, 4> kOutputParameters = {"binary_data", kSharedRegion,
                                                                      kSharedOffset, kSharedSize};

// The member as a literal, which outlives `key`; empty when it is not one of them.
[[nodiscard]] inline std::string_view Known(Members members, std::string_view key) {
  const auto member = std::find(members.begin(), members.end(), key);
  return member == members.end() ? std::string_view() : *member;
}

// A member of the request, the element of its list, and what in that: "inputs"[1].shape
struct At {
  std::string_view member;
  bool in_list = false;
  std::size_t index = 0;
  std::string_view inner;

  [[nodiscard]] std::string Text() const {
    std::string text = Cat("\"", member, "\"");
    if (in_list) text += Cat("[", index, "]");
    if (!inner.empty()) text += Cat(".", inner);
    return text;
  }
};

}  // namespace troupe::gateway
