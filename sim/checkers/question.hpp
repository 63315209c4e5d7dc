// What clients of schedules ask: rows of four floats that are read as text, so that an answer says whose it is. A run of a
// workflow may ask two rows: the first, and the same beginning with a capital.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>

namespace troupe::sim {

inline constexpr std::size_t kRowBytes = 16;

[[nodiscard]] inline std::string TwoRows(const std::string& row) {
  std::string second = row;
  second.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(second.front())));
  return row + second;
}

// The first row of the question that `rows` belong to, which may be the second row alone.
[[nodiscard]] inline std::string FirstRow(const std::string& rows) {
  std::string first = rows.substr(0, kRowBytes);
  if (!first.empty())
    first.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(first.front())));
  return first;
}

}  // namespace troupe::sim
