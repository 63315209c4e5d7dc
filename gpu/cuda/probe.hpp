// PROBE: what the driver, one GPU and the libraries of a machine can do, asked in about a minute at most; and what a
// worker would use of it.
#pragma once

#include <string>
#include <vector>

#include "gpu/device/cuda_plugin.hpp"

namespace troupe::gpu::cuda {

// One thing that was asked: "host memory" "opened for the call" "0.21 s for a GiB".
struct ProbeFact {
  std::string part;
  std::string name;
  std::string value;
};

struct Probed {
  CudaTrouble trouble = CudaTrouble::kNone;
  std::string why;  // of the trouble, one line
  std::vector<ProbeFact> facts;
  std::vector<std::string> uses;  // what a worker would use and why, a sentence each
};

// Takes `options.memory` of the GPU, or less where less is free, and gives it back. What a worker would end with at its
// start is the trouble; the facts that were found before stay.
[[nodiscard]] Probed ProbeDevice(const CudaOptions& options);

}  // namespace troupe::gpu::cuda
