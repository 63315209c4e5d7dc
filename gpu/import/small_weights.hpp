// SMALL WEIGHTS: where the weights of a model go that is only judged. The contents of small tensors, which may decide shapes,
// are kept; the others read as zeros and take no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gpu/ops/weights_output.hpp"

namespace troupe::gpu {

class SmallWeights final : public WeightsOutput {
 public:
  SmallWeights() = default;
  SmallWeights(const SmallWeights&) = delete;
  SmallWeights& operator=(const SmallWeights&) = delete;
  ~SmallWeights() override;
  absl::Status Append(std::span<const std::byte> bytes) override;
  // Maps as many bytes as were appended; ResourceExhausted where the process may not.
  absl::StatusOr<std::span<const std::byte>> Read() override;

 private:
  std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> kept_;  // by where they begin
  std::uint64_t size_ = 0;
  std::byte* mapped_ = nullptr;  // size_ bytes
};

}  // namespace troupe::gpu
