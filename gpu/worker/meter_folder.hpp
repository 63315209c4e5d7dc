// METER FOLDER: the meter pages of one node's workers, in its run directory: of those that live and of those
// that have ended.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/usage.pb.h"

namespace troupe::gpu {

// Where the worker at this socket makes its page; each call names another one.
[[nodiscard]] std::string NewMeterPath(const std::string& socket);

class MeterFolder {
 public:
  explicit MeterFolder(std::string directory) : directory_(std::move(directory)) {}
  // Every page that is there, by its file's name, also when it could not be read. An error: the directory could not be
  // listed.
  [[nodiscard]] absl::StatusOr<std::vector<proto::MeterReading>> Read() const;
  // Removes the page of a worker that has ended.
  void Remove(const std::string& page) const;

 private:
  std::string directory_;
};

}  // namespace troupe::gpu
