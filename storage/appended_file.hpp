// What was appended to a file that another thread goes on to write.
#pragma once

#include <string>
#include <utility>

#include "storage/model_repository.hpp"
#include "transport/memory_file.hpp"

namespace troupe::storage {

class AppendedFile final : public AppendedBytes {
 public:
  // `path` is named in errors only.
  AppendedFile(transport::UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  [[nodiscard]] absl::StatusOr<std::string> Read(Bytes offset, Bytes length) const override;

 private:
  const transport::UniqueFd file_;
  const std::string path_;
};

}  // namespace troupe::storage
