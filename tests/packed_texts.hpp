// Texts as they stand in inputs and outputs of a plan: each behind its length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::gpu {

inline std::vector<std::byte> PackTexts(const std::vector<std::string>& texts) {
  std::vector<std::byte> bytes;
  const auto append = [&bytes](const void* from, std::size_t size) {
    const auto* const first = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), first, first + size);
  };
  for (const std::string& text : texts) {
    const auto length = static_cast<std::uint32_t>(text.size());
    append(&length, sizeof(length));
    append(text.data(), text.size());
  }
  return bytes;
}

// What stands behind an end that no length reaches is a text of its own.
inline std::vector<std::string> UnpackTexts(std::span<const std::byte> bytes) {
  std::vector<std::string> texts;
  std::string_view left(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (left.size() >= sizeof(std::uint32_t)) {
    std::uint32_t length = 0;
    std::memcpy(&length, left.data(), sizeof(length));
    left.remove_prefix(sizeof(length));
    texts.emplace_back(left.substr(0, length));
    left.remove_prefix(std::min<std::size_t>(length, left.size()));
  }
  if (!left.empty()) texts.emplace_back(left);
  return texts;
}

}  // namespace troupe::gpu
