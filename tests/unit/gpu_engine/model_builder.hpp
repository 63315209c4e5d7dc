// Small canonical models for tests: values by name, weights appended to one blob.
#pragma once

#include <cstring>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/ops/operator.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

class ModelBuilder {
 public:
  explicit ModelBuilder(int opset = 13) {
    model_.set_format_version(1);
    model_.set_opset(opset);
  }

  std::string Input(std::string name, const Shape& shape, proto::DataType type = proto::FP32) {
    Fill(*model_.add_inputs(), name, shape, type);
    return name;
  }
  void Output(const std::string& name, const Shape& shape = {}, proto::DataType type = proto::FP32) {
    Fill(*model_.add_outputs(), name, shape, type);
  }

  template <class T>
  std::string Weight(proto::DataType type, const Shape& shape, const std::vector<T>& values) {
    weights_.resize((weights_.size() + 63) / 64 * 64);
    proto::Weight& weight = *model_.add_weights();
    weight.set_name("w" + std::to_string(model_.weights_size()));
    weight.set_type(type);
    for (auto dim : shape) weight.add_shape(dim);
    weight.set_offset(weights_.size());
    weight.set_length(values.size() * sizeof(T));
    const auto bytes = std::as_bytes(std::span(values));
    weights_.insert(weights_.end(), bytes.begin(), bytes.end());
    model_.set_weights_bytes(weights_.size());
    return weight.name();
  }
  std::string Floats(const Shape& shape, const std::vector<float>& values) {
    return Weight(proto::FP32, shape, values);
  }
  std::string Ints(const std::vector<std::int64_t>& values) {
    return Weight(proto::INT64, {static_cast<std::int64_t>(values.size())}, values);
  }
  std::string Random(const Shape& shape) { return Floats(shape, RandomValues(shape)); }

  std::vector<float> RandomValues(const Shape& shape) {
    std::int64_t count = 1;
    for (auto dim : shape) count *= dim;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random_);
    return values;
  }

  // Adds a step and returns it for attributes; its first output is named after it.
  proto::Step& Step(std::string_view op, std::initializer_list<std::string> inputs, std::string output) {
    proto::Step& step = *model_.add_steps();
    step.set_op(std::string(op));
    step.set_name("step" + std::to_string(model_.steps_size()));
    for (const auto& input : inputs) step.add_inputs(input);
    step.add_outputs(std::move(output));
    return step;
  }

  static void Set(proto::Step& step, std::string_view name, const std::vector<std::int64_t>& values) {
    proto::Attribute& attribute = *step.add_attributes();
    attribute.set_name(std::string(name));
    attribute.mutable_ints()->mutable_values()->Assign(values.begin(), values.end());
  }
  static void Set(proto::Step& step, std::string_view name, std::int64_t value) {
    proto::Attribute& attribute = *step.add_attributes();
    attribute.set_name(std::string(name));
    attribute.set_i(value);
  }
  static void SetFloat(proto::Step& step, std::string_view name, float value) {
    proto::Attribute& attribute = *step.add_attributes();
    attribute.set_name(std::string(name));
    attribute.set_f(value);
  }
  static void SetText(proto::Step& step, std::string_view name, std::string value) {
    proto::Attribute& attribute = *step.add_attributes();
    attribute.set_name(std::string(name));
    attribute.set_s(std::move(value));
  }

  [[nodiscard]] proto::Model& model() { return model_; }
  [[nodiscard]] const std::vector<std::byte>& weights() const { return weights_; }
  [[nodiscard]] std::vector<proto::TensorSpec> input_specs() const {
    return {model_.inputs().begin(), model_.inputs().end()};
  }

 private:
  static void Fill(proto::TensorSpec& spec, const std::string& name, const Shape& shape,
                   proto::DataType type) {
    spec.set_name(name);
    spec.set_type(type);
    for (auto dim : shape) spec.add_shape(dim);
  }

  proto::Model model_;
  std::vector<std::byte> weights_;
  std::mt19937 random_{7};
};

}  // namespace troupe::gpu
