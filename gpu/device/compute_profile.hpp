// How long runs take on a virtual GPU with `compute: timed`.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/run_cost.hpp"
#include "base/units.hpp"

namespace troupe::gpu {

// A text file, one run time per line, `#` begins a comment:
//     default            5ms
//     <digest>           12.5ms        # of the packed weights, or of the model's ONNX file
//     <digest>           8ms      40%  # no faster with more of the SMs than this
class ComputeProfile {
 public:
  static constexpr Duration kLongest = std::chrono::hours(1);
  // InvalidArgument names the line.
  static absl::StatusOr<ComputeProfile> Parse(std::string_view text);
  static absl::StatusOr<ComputeProfile> Read(const std::string& path);
  // The first of the digests that the profile knows, else the default.
  [[nodiscard]] RunCost CostOf(std::string_view digest, std::string_view onnx_digest) const;

 private:
  RunCost default_;
  std::map<std::string, RunCost, std::less<>> by_digest_;
};

}  // namespace troupe::gpu
