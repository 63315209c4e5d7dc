// A folder in memory, in which tests make the shared memory objects of their clients.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace troupe::gateway {

class SharedFolder {
 public:
  SharedFolder() {
    std::string name = "/dev/shm/troupe-test-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder() { std::filesystem::remove_all(path_); }

  void Make(const std::string& name, const std::string& bytes) const {
    std::ofstream(Of(name), std::ios::binary) << bytes;
  }
  [[nodiscard]] std::string Read(const std::string& name) const {
    std::ifstream file(Of(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Resize(const std::string& name, std::uintmax_t size) const {
    std::filesystem::resize_file(Of(name), size);
  }
  void Remove(const std::string& name) const { std::filesystem::remove(Of(name)); }
  [[nodiscard]] std::string Of(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace troupe::gateway
