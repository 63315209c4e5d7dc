// DIGEST KEY: a model's digest as a key of tables that have a row for each of very many models: 32 bytes in the row, where a
// text is 64 on the heap beside the row. Keys are in the order of their texts.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/digest.hpp"

namespace troupe::cluster {

class DigestKey {
 public:
  // Absent for a text that is not a SHA-256 in lower-case hexadecimal digits: no model has such a digest.
  [[nodiscard]] static std::optional<DigestKey> Of(std::string_view text) {
    if (!IsSha256Hex(text)) return std::nullopt;
    DigestKey key;
    for (std::size_t i = 0; i < kBytes; ++i)
      key.bytes_[i] = static_cast<std::uint8_t>(ValueOf(text[2 * i]) << 4U | ValueOf(text[2 * i + 1]));
    return key;
  }
  [[nodiscard]] std::string Text() const {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    text.reserve(2 * kBytes);
    for (const std::uint8_t byte : bytes_) {
      text.push_back(kDigits[byte >> 4U]);
      text.push_back(kDigits[byte & 0xfU]);
    }
    return text;
  }
  auto operator<=>(const DigestKey&) const = default;

 private:
  static constexpr std::size_t kBytes = 32;
  DigestKey() = default;
  [[nodiscard]] static unsigned ValueOf(char digit) {
    return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
  }

  std::array<std::uint8_t, kBytes> bytes_{};
};

}  // namespace troupe::cluster
