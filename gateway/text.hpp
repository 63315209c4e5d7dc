// Joining text. (absl::StrCat knows its own string_view only: Debian's absl is built apart from
// std::string_view.)
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace troupe::gateway {

inline void AppendPiece(std::string& out, std::string_view text) {
  out += text;
}
template <std::integral T>
requires(!std::same_as<T, char> && !std::same_as<T, bool>) void AppendPiece(std::string& out, T number) {
  std::array<char, 24> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

template <typename... Pieces>
void Append(std::string& out, const Pieces&... pieces) {
  (AppendPiece(out, pieces), ...);
}
template <typename... Pieces>
[[nodiscard]] std::string Cat(const Pieces&... pieces) {
  std::string out;
  Append(out, pieces...);
  return out;
}

// The `text` of every item, with `separator` between.
template <typename Items, typename Text>
[[nodiscard]] std::string Join(const Items& items, std::string_view separator, Text text) {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += separator;
    first = false;
    AppendPiece(out, text(item));
  }
  return out;
}

// Valid as long as `status` is.
[[nodiscard]] inline std::string_view Message(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

}  // namespace troupe::gateway
