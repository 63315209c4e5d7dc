// Kernels of com.microsoft's other operators: what a hostile file or request may ask, and what the conformance cases do
// not reach.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/gpu_ops/fused_steps.hpp"

namespace troupe::gpu {
namespace {

// --- EmbedLayerNormalization ---

std::vector<TestTensor> EmbeddingInputs(const std::vector<std::int32_t>& ids) {
  return {Int32s({1, 3}, ids), Absent(), Waves({5, 4}), Waves({3, 4}), Absent(), Waves({4}), Waves({4})};
}

TEST(EmbedNorm, RefusesIndicesThatTheTablesLack) {
  const proto::Step step = Microsoft("EmbedLayerNormalization");
  EXPECT_TRUE(RunOp(step, EmbeddingInputs({0, 4, 2})).ok());
  ExpectError(step, EmbeddingInputs({0, 5, 2}), "5");
  ExpectError(step, EmbeddingInputs({0, -1, 2}), "-1");
  std::vector<TestTensor> segments = EmbeddingInputs({0, 1, 2});
  segments[1] = Int32s({1, 3}, {0, 1, 2});
  segments[4] = Waves({2, 4});
  ExpectError(step, segments, "2");
  ExpectError(step, Replaced(EmbeddingInputs({0, 1, 2}), 8, Int32s({1, 3}, {0, 1, 3})), "3");
}

TEST(EmbedNorm, RefusesShapesThatDoNotFit) {
  const proto::Step step = Microsoft("EmbedLayerNormalization");
  const std::vector<TestTensor> good = EmbeddingInputs({0, 1, 2});
  ExpectError(step, Replaced(good, 3, Waves({2, 4})), "position_embedding has 2 rows");
  ExpectError(step, Replaced(good, 3, Waves({3, 5})), "input 3");
  ExpectError(step, Replaced(good, 5, Waves({5})), "input 5");
  ExpectError(step, Replaced(good, 6, Absent()), "input 6 is required");
  ExpectError(step, Replaced(good, 1, Int32s({1, 3}, {0, 0, 0})), "come together");
  ExpectError(step, Replaced(good, 7, Int32s({1, 2}, {1, 1})), "input 7");
  ExpectError(step, Replaced(good, 2, Waves({5, 0})), "input 3");
  ExpectError(Microsoft("EmbedLayerNormalization", {{"pooling", 1}}), good, "'pooling'");
}

// --- FusedMatMul ---

TEST(FusedMatMul, RefusesWhatDoesNotMultiply) {
  ExpectError(Microsoft("FusedMatMul"), {Waves({2, 3}), Waves({2, 3})}, "inner dimensions 3 and 2 differ");
  ExpectError(Microsoft("FusedMatMul", {{"transA", 1}, {"transB", 1}}), {Waves({2, 3}), Waves({2, 3})},
              "inner dimensions 2 and 3 differ");
  ExpectError(Microsoft("FusedMatMul"), {Floats({}, {1}), Waves({1, 3})}, "1 to 10 dimensions");
  ExpectError(Microsoft("FusedMatMul"), {Waves({2, 2, 3}), Waves({3, 3, 2})}, "broadcast");
  ExpectError(Microsoft("FusedMatMul"), {Waves({2, 3}), Longs({3, 1}, {1, 2, 3})}, "different types");
  ExpectError(Microsoft("FusedMatMul", {{"beta", 1}}), {Waves({2, 3}), Waves({3, 2})}, "'beta'");
}

// --- MatMulNBits ---

proto::Step FewBits(std::int64_t k, std::int64_t n, std::int64_t bits, std::int64_t block) {
  return Microsoft("MatMulNBits", {{"K", k}, {"N", n}, {"bits", bits}, {"block_size", block}});
}
// K 32, N 2, 4 bits, blocks of 16.
std::vector<TestTensor> FewBitInputs() {
  return {Waves({3, 32}), ByteValues({2, 2, 8}, 32, 0x9A), Waves({2, 2})};
}

TEST(MatMulNBits, RefusesSizesThatCannotBe) {
  const std::vector<TestTensor> in = FewBitInputs();
  EXPECT_TRUE(RunOp(FewBits(32, 2, 4, 16), in).ok());
  for (std::int64_t block : {std::int64_t{0}, std::int64_t{-16}, std::int64_t{8}, std::int64_t{24},
                             std::int64_t{512}, kHugeSize, std::numeric_limits<std::int64_t>::min()})
    ExpectError(FewBits(32, 2, 4, block), in, "block_size is");
  for (std::int64_t bits : {0, 1, 2, 3, 16, -4}) ExpectError(FewBits(32, 2, bits, 16), in, "bits is");
  ExpectError(FewBits(0, 2, 4, 16), in, "K is 0");
  ExpectError(FewBits(32, -2, 4, 16), in, "N is -2");
  ExpectError(FewBits(kHugeSize, kHugeSize, 4, 16), in, "K is");
  ExpectError(FewBits(31, 2, 4, 16), in, "rows of K = 31");
  ExpectError(FewBits(32, 3, 4, 16), in, "the weights are");
  ExpectError(FewBits(32, 2, 8, 16), in, "the weights are");
  ExpectError(FewBits(32, 2, 4, 32), in, "the weights are");
}

TEST(MatMulNBits, RefusesInputsThatDoNotFit) {
  const proto::Step step = FewBits(32, 2, 4, 16);
  ExpectError(step, Replaced(FewBitInputs(), 2, Waves({2, 3})), "the scales are");
  ExpectError(step, Replaced(FewBitInputs(), 3, ByteValues({2, 2}, 4)), "the zero points are");
  ExpectError(step, Replaced(FewBitInputs(), 3, Longs({2, 2}, {1, 1, 1, 1})), "the zero points are");
  ExpectError(step, Replaced(FewBitInputs(), 4, Int32s({32}, std::vector<std::int32_t>(32, 0))), "g_idx");
  ExpectError(step, Replaced(FewBitInputs(), 5, Waves({3})), "the bias [3]");
  ExpectError(step, {Waves({3, 32}), Waves({2, 2, 8}), Waves({2, 2})}, "the weights are FP32");
  ExpectError(Microsoft("MatMulNBits",
                        {{"K", 32}, {"N", 2}, {"bits", 4}, {"block_size", 16}, {"weight_prepacked", 1}}),
              FewBitInputs(), "weight_prepacked");
  ExpectError(
      Microsoft("MatMulNBits", {{"K", 32}, {"N", 2}, {"bits", 4}, {"block_size", 16}, {"accuracy_level", 5}}),
      FewBitInputs(), "accuracy_level");
}

// --- QLinear* ---

TestTensor Scale() {
  return Floats({}, {0.5F});
}
TestTensor Zero() {
  return ByteValues({}, 1, 3);
}

TEST(QLinear, RefusesScalesThatAreNotOneNumber) {
  const TestTensor x = ByteValues({1, 2, 3, 3}, 18);
  const std::vector<TestTensor> unary = {x, Scale(), Zero(), Scale(), Zero()};
  for (const char* op : {"QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool"}) {
    EXPECT_TRUE(RunOp(Microsoft(op), unary).ok()) << op;
    ExpectError(Microsoft(op), Replaced(unary, 1, Floats({2}, {1, 2})), "input 1 must be one FP32");
    ExpectError(Microsoft(op), Replaced(unary, 3, Zero()), "input 3 must be one FP32");
    ExpectError(Microsoft(op), Replaced(unary, 4, ByteValues({2}, 2)), "input 4 must be one UINT8");
    ExpectError(Microsoft(op), Replaced(unary, 2, Tensor<std::int8_t>(proto::INT8, {}, {1})),
                "input 2 must be one UINT8");
    ExpectError(Microsoft(op), Replaced(unary, 0, Waves({1, 2, 3, 3})), "FP32");
    ExpectError(Microsoft(op, {{"mode", 1}}), unary, "'mode'");
  }
}

TEST(QLinear, RefusesTensorsThatDoNotFit) {
  const TestTensor x = ByteValues({2, 3}, 6);
  const std::vector<TestTensor> add = {x, Scale(), Zero(), x, Scale(), Zero(), Scale(), Zero()};
  EXPECT_TRUE(RunOp(Microsoft("QLinearAdd"), add).ok());
  ExpectError(Microsoft("QLinearAdd"), Replaced(add, 3, ByteValues({2, 2}, 4)), "broadcast");
  ExpectError(Microsoft("QLinearMul"), Replaced(add, 3, Tensor<std::int8_t>(proto::INT8, {1}, {1})),
              "input 3 must be");
  ExpectError(Microsoft("QLinearMul"), Replaced(add, 6, Absent()), "input 6 must be");
  const std::vector<TestTensor> join = {Scale(), Zero(), x, Scale(), Zero(), x, Scale(), Zero()};
  EXPECT_TRUE(RunOp(Microsoft("QLinearConcat", {{"axis", 1}}), join).ok());
  ExpectError(Microsoft("QLinearConcat"), join, "has no axis");
  ExpectError(Microsoft("QLinearConcat", {{"axis", 2}}), join, "axis 2");
  ExpectError(Microsoft("QLinearConcat", {{"axis", 1}}), Replaced(join, 5, ByteValues({3, 2}, 6)),
              "does not join");
  ExpectError(Microsoft("QLinearConcat", {{"axis", 1}}), {Scale(), Zero()}, "wants a tensor to join");
  ExpectError(Microsoft("QLinearConcat", {{"axis", 1}}), {Scale(), Zero(), x, Zero()},
              "input 3 must be one FP32");
  ExpectError(Microsoft("QLinearAveragePool"), {x, Scale(), Zero(), Scale(), Zero()}, "3 to 5 dimensions");
  ExpectError(Microsoft("QLinearAveragePool"), {ByteValues({1, 1, 4}, 4), Scale(), Zero(), Scale(), Zero()},
              "kernel_shape");
}

// A zero point that is not there is 0.
TEST(QLinear, ZeroPointsMayBeAbsent) {
  const TestTensor x = Tensor<std::uint8_t>(proto::UINT8, {4}, {0, 10, 100, 200});
  const TestTensor y = Tensor<std::uint8_t>(proto::UINT8, {1}, {20});
  const TestTensor scale = Floats({}, {1});
  const auto sum = RunOp(Microsoft("QLinearAdd"), {x, scale, Absent(), y, scale, Absent(), scale});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ((*sum)[0].As<std::uint8_t>(), (std::vector<std::uint8_t>{20, 30, 120, 220}));
  const auto product = RunOp(Microsoft("QLinearMul"), {x, scale, Absent(), y, scale, Absent(), scale});
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_EQ((*product)[0].As<std::uint8_t>(), (std::vector<std::uint8_t>{0, 200, 255, 255}));
}

// A scale of 0 comes with the request: any answer will do, and no crash.
TEST(QLinear, AScaleOfZeroIsAnswered) {
  const TestTensor x = ByteValues({4}, 4, 7);
  const TestTensor zero = Floats({}, {0});
  EXPECT_TRUE(RunOp(Microsoft("QLinearAdd"), {x, zero, Zero(), x, zero, Zero(), zero, Zero()}).ok());
  EXPECT_TRUE(RunOp(Microsoft("QLinearMul"), {x, zero, Zero(), x, zero, Zero(), zero, Zero()}).ok());
  EXPECT_TRUE(RunOp(Microsoft("QLinearSigmoid"), {x, zero, Zero(), zero, Zero()}).ok());
}

// --- Normalisations ---

TEST(SimplifiedLayerNormalization, RefusesScalesThatAreNotAsLongAsARow) {
  ExpectError(MakeStep("SimplifiedLayerNormalization"), {Waves({2, 3}), Waves({2})},
              "shape of the normalised axes");
  ExpectError(MakeStep("SimplifiedLayerNormalization"), {Waves({2, 3}), Longs({3}, {1, 2, 3})}, "type");
  ExpectError(MakeStep("SimplifiedLayerNormalization"), {Waves({2, 3}), Waves({3}), Waves({3})}, "3 inputs");
}

}  // namespace
}  // namespace troupe::gpu
