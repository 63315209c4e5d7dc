// TENSOR VALUES: the elements of a tensor for people and programs. The data came over the network: elements
// beyond its bytes do not exist. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/tensor.pb.h"
#include "shell/text/text.hpp"

namespace troupe::shell {

// Refers to the tensor, which outlives it.
class TensorValues {
 public:
  explicit TensorValues(const proto::Tensor& tensor);
  [[nodiscard]] std::size_t size() const { return size_; }
  // False for BYTES.
  [[nodiscard]] bool numeric() const { return element_ != 0; }
  [[nodiscard]] double Number(std::size_t i) const;
  // As a JSON value: integers and FP32, FP64 exactly; null for NaN and infinities.
  [[nodiscard]] std::string Json(std::size_t i) const;
  // Short, for people.
  [[nodiscard]] std::string Text(std::size_t i) const;

 private:
  const proto::Tensor& tensor_;
  std::size_t element_;
  std::vector<std::string_view> texts_;
  std::size_t size_;
};

// What a person wants to see of an output: all of a small one; of a larger one the range and the greatest
// values, for each row of a batch. Several lines, the first with name, type and shape.
[[nodiscard]] std::string SummariseTensor(const proto::Tensor& tensor, const Style& style);

// Bytes that are not valid UTF-8 are replaced by '?'.
[[nodiscard]] std::string MakeUtf8(std::string_view text);

}  // namespace troupe::shell
