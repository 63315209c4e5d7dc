// What a file's check says of CUDA GPUs. That the plug-in says the same is in tests/unit/gpu_cuda.
#include "gpu/import/cuda_check.hpp"

#include "gmock/gmock.h"
#include "gpu/import/small_weights.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_import/imported.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Refused(const OnnxBuilder& builder) {
  SmallWeights small;
  ImportOptions options;
  options.weights = &small;
  const std::string file = builder.File();
  const auto imported = ImportOnnx(AsBytes(file), options);
  if (!imported.ok()) return {std::string(imported.status().message())};
  std::vector<proto::TensorSpec> inputs(imported->model.inputs().begin(), imported->model.inputs().end());
  for (proto::TensorSpec& input : inputs)
    if (input.shape(0) < 0) input.set_shape(0, 1);
  const auto lines = CudaRefusals(imported->model, imported->blob(), inputs);
  return lines.ok() ? *lines : std::vector<std::string>{std::string(lines.status().message())};
}

TEST(CudaCheck, ANetworkOfCoveredStepsIsNotRefused) {
  EXPECT_THAT(Refused(SmallNetwork()), IsEmpty());
}

TEST(CudaCheck, EachOperatorAndReasonHasOneLineWithItsFirstStep) {
  OnnxBuilder builder(20);
  builder.Input("x", {-1, 4});
  builder.Node("Hardmax", {"x"}, {"a"}, "first");
  builder.Node("Gelu", {"a"}, {"b"}, "exact");
  for (const auto& [from, to] : {std::pair("b", "c"), std::pair("c", "d")}) {
    onnx::AttributeProto& how =
        *builder.Node("Gelu", {from}, {to}, std::string("tanh_") + to).add_attribute();
    how.set_name("approximate");
    how.set_type(onnx::AttributeProto::STRING);
    how.set_s("tanh");
  }
  builder.Node("Hardmax", {"d"}, {"e"}, "second");
  builder.Node("Hardmax", {"e"}, {"y"}, "third");
  builder.Output("y", {-1, 4});
  EXPECT_THAT(Refused(builder),
              ElementsAre("Hardmax 'first' and 2 more: no kernel of the GPU covers this operator",
                          "Gelu 'tanh_c' and 1 more: no kernel of the GPU covers its approximation by tanh"));
}

TEST(CudaCheck, TextsAreRefusedByTheirInput) {
  OnnxBuilder builder(20);
  builder.Input("words", {-1}, onnx::TensorProto::STRING);
  builder.Node("StringConcat", {"words", "words"}, {"y"}, "twice");
  builder.Output("y", {-1}, onnx::TensorProto::STRING);
  EXPECT_THAT(Refused(builder), ElementsAre(HasSubstr("input 'words' has texts (BYTES)")));
}

TEST(CudaCheck, ShapesThatTheDataDecideAreRefused) {
  OnnxBuilder builder(17);
  builder.Input("x", {-1, 4});
  builder.Node("NonZero", {"x"}, {"places"}, "which");
  SetInt(builder.Node("Cast", {"places"}, {"y"}, "numbers"), "to", onnx::TensorProto::FLOAT);
  builder.Output("y", {2, -1});
  EXPECT_THAT(Refused(builder),
              ElementsAre("NonZero 'which': no kernel of the GPU covers shapes that depend on data",
                          "Cast 'numbers': no kernel of the GPU covers shapes that depend on data"));
}

// Shapes follow from small weights, which a check keeps; a large one reads as zeros.
TEST(CudaCheck, LargeWeightsTakeNoMemory) {
  SmallWeights weights;
  const std::vector<std::byte> small(100, std::byte{7});
  const std::vector<std::byte> large((std::size_t{1} << 20) + 1, std::byte{9});
  for (const auto* part : {&small, &large, &small}) ASSERT_TRUE(weights.Append(*part).ok());
  const auto read = weights.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), small.size() * 2 + large.size());
  EXPECT_EQ((*read)[99], std::byte{7});
  EXPECT_EQ((*read)[100], std::byte{0});
  EXPECT_EQ(read->back(), std::byte{7});
}

}  // namespace
}  // namespace troupe::gpu::test
