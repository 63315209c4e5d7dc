// Models in a host region, as a daemon would place them.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "proto/worker.pb.h"
#include "tests/unit/gpu_device/small_model.hpp"
#include "transport/host_region.hpp"

namespace troupe::gpu::test {

inline proto::RegionRange PlaceBytes(transport::HostRegion& region, std::span<const std::byte> bytes) {
  auto range = region.Allocate(Bytes(bytes.size()));
  TROUPE_CHECK(range.ok(), "the host region of a test is too small");
  std::memcpy(region.Writable(*range)->data(), bytes.data(), bytes.size());
  return *range;
}

inline proto::HostCopy PlaceModel(transport::HostRegion& region, const std::string& digest,
                                  proto::Model model, std::span<const std::byte> weights) {
  model.set_weights_bytes(weights.size());
  proto::HostCopy copy;
  copy.set_digest(digest);
  const std::string description = model.SerializeAsString();
  *copy.mutable_model() = PlaceBytes(region, std::as_bytes(std::span(description)));
  *copy.mutable_weights() = PlaceBytes(region, weights);
  return copy;
}

// The small model with weights of `size` bytes, of which it reads 16 from `at` on.
inline proto::HostCopy PlaceSmall(transport::HostRegion& region, const std::string& digest, float first = 1,
                                  std::size_t size = 64, std::size_t at = 0) {
  const std::vector<std::byte> read = SmallWeights(first);
  std::vector<std::byte> weights(size);
  std::memcpy(weights.data() + at, read.data(), std::min(read.size(), size - at));
  proto::Model model = SmallModel();
  model.mutable_weights(0)->set_offset(at);
  return PlaceModel(region, digest, std::move(model), weights);
}

// An input x of `rows` rows: 0, 1, 2, ...
inline proto::Tensor SmallInput(std::int64_t rows) {
  proto::Tensor tensor;
  *tensor.mutable_spec() = Spec("x", {rows, kColumns});
  std::vector<float> values(static_cast<std::size_t>(rows) * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  tensor.mutable_data()->set_inlined(values.data(), values.size() * sizeof(float));
  return tensor;
}

}  // namespace troupe::gpu::test
