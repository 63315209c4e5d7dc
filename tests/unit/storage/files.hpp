// A directory for a test, and files in it.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "tests/temporary_directory.hpp"

namespace troupe::storage {

using test::TemporaryDirectory;

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace troupe::storage
