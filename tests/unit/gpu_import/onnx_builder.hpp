// Builds ONNX files in memory, sound or not, for the importer's tests.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "gpu/import/onnx_reader.hpp"
#include "onnx/onnx_pb.h"

namespace troupe::gpu::test {

class OnnxBuilder {
 public:
  explicit OnnxBuilder(int opset = 13);

  onnx::ModelProto model;
  onnx::GraphProto& graph() { return *model.mutable_graph(); }

  // -1: a dynamic dimension.
  onnx::ValueInfoProto& Input(const std::string& name, std::initializer_list<std::int64_t> shape,
                              int type = onnx::TensorProto::FLOAT);
  onnx::ValueInfoProto& Output(const std::string& name, std::initializer_list<std::int64_t> shape,
                               int type = onnx::TensorProto::FLOAT);
  onnx::NodeProto& Node(const std::string& op, std::initializer_list<std::string> inputs,
                        std::initializer_list<std::string> outputs, const std::string& name = "");
  onnx::TensorProto& Weight(const std::string& name, std::initializer_list<std::int64_t> shape,
                            const std::vector<float>& values);
  onnx::TensorProto& Ints(const std::string& name, const std::vector<std::int64_t>& values);

  [[nodiscard]] std::string File() const { return model.SerializeAsString(); }

 private:
  static onnx::ValueInfoProto& Describe(onnx::ValueInfoProto& value, const std::string& name,
                                        std::initializer_list<std::int64_t> shape, int type);
};

onnx::AttributeProto& SetInt(onnx::NodeProto& node, const std::string& name, std::int64_t value);
onnx::AttributeProto& SetFloat(onnx::NodeProto& node, const std::string& name, float value);
onnx::AttributeProto& SetInts(onnx::NodeProto& node, const std::string& name,
                              std::initializer_list<std::int64_t> values);

// Gives `node` a graph as an attribute.
void AddGraph(onnx::NodeProto& node, const std::string& name, const OnnxBuilder& graph);
// Makes `node` an If with these branches.
void AddBranches(onnx::NodeProto& node, const OnnxBuilder& then, const OnnxBuilder& otherwise);

[[nodiscard]] inline std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}
// The error of reading `builder`'s file; empty when the file can be read.
[[nodiscard]] std::string ReadError(const OnnxBuilder& builder, const ImportOptions& options = {});

// A small network with a convolution, normalisation, activation, pooling and a head: x [-1,3,8,8] -> y
// [-1,4].
[[nodiscard]] OnnxBuilder SmallNetwork();

// The values of a constant.
[[nodiscard]] std::vector<float> FloatsOf(const Constant& constant);

}  // namespace troupe::gpu::test
