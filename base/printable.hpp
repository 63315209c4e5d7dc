// Words of a process that is not trusted, for a log.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

// The first `most` bytes, with '?' in place of each that is no printable ASCII character.
[[nodiscard]] inline std::string PrintableAscii(std::string_view text, std::size_t most) {
  std::string printable(text.substr(0, most));
  std::ranges::replace_if(
      printable, [](char c) { return c < ' ' || c > '~'; }, '?');
  return printable;
}

}  // namespace troupe
