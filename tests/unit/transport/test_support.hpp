// What several of these tests need: patience, and a directory of a test's own that is removed at its end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <span>
#include <string>

#include "base/units.hpp"

namespace troupe::transport {

// Longer than anything takes on a busy machine: a test that waits this long has failed.
inline constexpr Duration kLong = std::chrono::seconds(60);

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = "/tmp/troupe-transport-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace troupe::transport
