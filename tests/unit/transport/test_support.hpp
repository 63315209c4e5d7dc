// What several of these tests need: a time to wait, and a directory of a test's own that is removed at its
// end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <span>
#include <string>

#include "base/units.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::transport {

// Longer than anything takes on a busy machine: a test that waits this long has failed.
inline constexpr Duration kLong = std::chrono::seconds(60);

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

using test::TemporaryDirectory;

}  // namespace troupe::transport
