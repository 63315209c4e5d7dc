// Steps and tensors for the tests of com.microsoft's operators.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {

inline constexpr std::int64_t kHugeSize = std::int64_t{1} << 40;

inline proto::Step Microsoft(const std::string& op,
                             const std::vector<std::pair<std::string, std::int64_t>>& ints = {},
                             int outputs = 1) {
  proto::Step step = MakeStep("com.microsoft." + op, outputs);
  for (const auto& [name, value] : ints) SetInt(step, name, value);
  return step;
}

inline TestTensor Absent() {
  return {};
}
inline TestTensor Int32s(Shape shape, const std::vector<std::int32_t>& values) {
  return Tensor<std::int32_t>(proto::INT32, std::move(shape), values);
}
inline TestTensor ByteValues(Shape shape, std::size_t count, std::uint8_t value = 0) {
  return Tensor<std::uint8_t>(proto::UINT8, std::move(shape), std::vector<std::uint8_t>(count, value));
}
// Values between -1 and 1.
inline TestTensor Waves(const Shape& shape) {
  TestTensor tensor = Counting(shape);
  std::vector<float> values = tensor.As<float>();
  for (float& value : values) value = std::sin(value);
  return Floats(shape, values);
}
// The inputs with another one at `index`.
inline std::vector<TestTensor> Replaced(std::vector<TestTensor> in, std::size_t index, TestTensor value) {
  in.resize(std::max(in.size(), index + 1));
  in[index] = std::move(value);
  return in;
}

}  // namespace troupe::gpu
