#include "tests/unit/gpu_import/onnx_builder.hpp"

#include <cstring>

#include "base/random.hpp"

namespace troupe::gpu::test {

OnnxBuilder::OnnxBuilder(int opset) {
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  graph().set_name("test");
}

onnx::ValueInfoProto& OnnxBuilder::Describe(onnx::ValueInfoProto& value, const std::string& name,
                                            std::initializer_list<std::int64_t> shape, int type) {
  value.set_name(name);
  auto& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  tensor.mutable_shape();
  for (std::int64_t size : shape) {
    auto& dim = *tensor.mutable_shape()->add_dim();
    if (size == -1)
      dim.set_dim_param("N");
    else
      dim.set_dim_value(size);
  }
  return value;
}

onnx::ValueInfoProto& OnnxBuilder::Input(const std::string& name, std::initializer_list<std::int64_t> shape,
                                         int type) {
  return Describe(*graph().add_input(), name, shape, type);
}

onnx::ValueInfoProto& OnnxBuilder::Output(const std::string& name, std::initializer_list<std::int64_t> shape,
                                          int type) {
  return Describe(*graph().add_output(), name, shape, type);
}

onnx::NodeProto& OnnxBuilder::Node(const std::string& op, std::initializer_list<std::string> inputs,
                                   std::initializer_list<std::string> outputs, const std::string& name) {
  onnx::NodeProto& node = *graph().add_node();
  node.set_op_type(op);
  node.set_name(name);
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  return node;
}

onnx::TensorProto& OnnxBuilder::Weight(const std::string& name, std::initializer_list<std::int64_t> shape,
                                       const std::vector<float>& values) {
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (std::int64_t size : shape) tensor.add_dims(size);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

onnx::TensorProto& OnnxBuilder::Ints(const std::string& name, const std::vector<std::int64_t>& values) {
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<std::int64_t>(values.size()));
  tensor.set_raw_data(values.data(), values.size() * sizeof(std::int64_t));
  return tensor;
}

onnx::AttributeProto& SetInt(onnx::NodeProto& node, const std::string& name, std::int64_t value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
  return attribute;
}

onnx::AttributeProto& SetFloat(onnx::NodeProto& node, const std::string& name, float value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
  return attribute;
}

onnx::AttributeProto& SetInts(onnx::NodeProto& node, const std::string& name,
                              std::initializer_list<std::int64_t> values) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  for (std::int64_t value : values) attribute.add_ints(value);
  return attribute;
}

void AddGraph(onnx::NodeProto& node, const std::string& name, const OnnxBuilder& graph) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  *attribute.mutable_g() = graph.model.graph();
}

void AddBranches(onnx::NodeProto& node, const OnnxBuilder& then, const OnnxBuilder& otherwise) {
  AddGraph(node, "then_branch", then);
  AddGraph(node, "else_branch", otherwise);
}

std::string ReadError(const OnnxBuilder& builder, const ImportOptions& options) {
  const std::string file = builder.File();
  const auto imported = ReadOnnx(AsBytes(file), options);
  return imported.ok() ? "" : std::string(imported.status().message());
}

OnnxBuilder SmallNetwork() {
  Random random(7);
  const auto values = [&random](std::size_t count) {
    std::vector<float> result(count);
    for (float& value : result) value = static_cast<float>(random.Uniform() - 0.5);
    return result;
  };
  OnnxBuilder b;
  b.Input("x", {-1, 3, 8, 8});
  b.Weight("w", {8, 3, 3, 3}, values(8 * 27));
  SetInts(b.Node("Conv", {"x", "w"}, {"c"}, "conv"), "pads", {1, 1, 1, 1});
  b.Weight("scale", {8}, values(8));
  b.Weight("bias", {8}, values(8));
  b.Weight("mean", {8}, values(8));
  b.Weight("var", {8}, std::vector<float>(8, 0.5F));
  b.Node("BatchNormalization", {"c", "scale", "bias", "mean", "var"}, {"n"}, "norm");
  b.Node("Relu", {"n"}, {"r"}, "relu");
  b.Weight("w2", {8, 8, 1, 1}, values(64));
  b.Node("Conv", {"r", "w2"}, {"c2"}, "conv2");
  b.Node("Add", {"c2", "r"}, {"s"}, "residual");
  SetFloat(b.Node("LeakyRelu", {"s"}, {"l"}, "leaky"), "alpha", 0.1F);
  b.Node("GlobalAveragePool", {"l"}, {"p"}, "pool");
  b.Node("Dropout", {"p"}, {"d", "mask"}, "dropout");
  SetInt(b.Node("Flatten", {"d"}, {"f"}, "flatten"), "axis", 1);
  b.Weight("m", {8, 4}, values(32));
  b.Node("MatMul", {"f", "m"}, {"h"}, "head");
  b.Weight("hb", {4}, values(4));
  b.Node("Add", {"h", "hb"}, {"hbo"}, "head_bias");
  b.Node("Tanh", {"hbo"}, {"y"}, "tanh");
  b.Output("y", {-1, 4});
  return b;
}

std::vector<float> FloatsOf(const Constant& constant) {
  std::vector<float> values(constant.data->size() / sizeof(float));
  std::memcpy(values.data(), constant.data->data(), values.size() * sizeof(float));
  return values;
}

}  // namespace troupe::gpu::test
