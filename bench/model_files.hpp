// ONNX files as the benches of models read them.
#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "proto/model.pb.h"

namespace troupe::gpu::bench {

inline std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Dynamic dimensions become 1.
inline std::vector<proto::TensorSpec> ConcreteInputs(const proto::Model& model) {
  std::vector<proto::TensorSpec> inputs(model.inputs().begin(), model.inputs().end());
  for (proto::TensorSpec& input : inputs) {
    for (auto& size : *input.mutable_shape()) size = size < 0 ? 1 : size;
  }
  return inputs;
}

}  // namespace troupe::gpu::bench
