// A directory of the test's own, gone with it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/check.hpp"

namespace troupe::gpu::test {

class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "troupe-worker-XXXXXX";
    TROUPE_CHECK(mkdtemp(pattern.data()) != nullptr, "no temporary directory");
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  [[nodiscard]] std::string File(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace troupe::gpu::test
