// Runs one operator as a plan would: infers its shapes, makes it, and runs it in buffers of exactly the
// promised size.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/ops/operator.hpp"
#include "tests/packed_texts.hpp"

namespace troupe::gpu {

struct TestTensor {
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
  Shape shape;
  std::vector<std::byte> data;
  bool known = false;  // its contents are known when the plan is made

  [[nodiscard]] TestTensor Known() const {
    TestTensor copy = *this;
    copy.known = true;
    return copy;
  }
  // Of BYTES, which stand here each behind its length.
  [[nodiscard]] std::vector<std::string> AsTexts() const { return UnpackTexts(data); }
  template <class T>
  [[nodiscard]] std::vector<T> As() const {
    std::vector<T> values(data.size() / sizeof(T));
    if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
    return values;
  }
};

template <class T>
TestTensor Tensor(proto::DataType type, Shape shape, const std::vector<T>& values) {
  TestTensor tensor{type, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T)), false};
  if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}
inline TestTensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor<float>(proto::FP32, std::move(shape), values);
}
inline TestTensor Longs(Shape shape, const std::vector<std::int64_t>& values) {
  return Tensor<std::int64_t>(proto::INT64, std::move(shape), values);
}
inline TestTensor Texts(Shape shape, const std::vector<std::string>& texts) {
  return {proto::BYTES, std::move(shape), PackTexts(texts), false};
}
// 1, 2, 3, ...
TestTensor Counting(const Shape& shape);

proto::Step MakeStep(const std::string& op, int outputs = 1);
void SetInt(proto::Step& step, const std::string& name, std::int64_t value);
void SetInts(proto::Step& step, const std::string& name, const std::vector<std::int64_t>& values);
void SetFloat(proto::Step& step, const std::string& name, float value);
void SetText(proto::Step& step, const std::string& name, const std::string& value);
void SetFloats(proto::Step& step, const std::string& name, const std::vector<float>& values);
void SetTexts(proto::Step& step, const std::string& name, const std::vector<std::string>& values);

// The outputs with their real shapes. A write beyond the end of an output is a failed check, which ends the
// program.
absl::StatusOr<std::vector<TestTensor>> RunOp(const proto::Step& step, const std::vector<TestTensor>& in,
                                              int opset = 17);
// The step is refused as an invalid argument, by an error that names its operator and has `part` in it.
void ExpectError(const proto::Step& step, const std::vector<TestTensor>& in, const std::string& part,
                 int opset = 17);

}  // namespace troupe::gpu
