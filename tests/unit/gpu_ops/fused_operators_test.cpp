// Kernels of com.microsoft's operators: what a hostile file or request may ask of them, and what the conformance cases do
// not reach.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

constexpr std::int64_t kHugeSize = std::int64_t{1} << 40;

proto::Step Microsoft(const std::string& op,
                      const std::vector<std::pair<std::string, std::int64_t>>& ints = {}, int outputs = 1) {
  proto::Step step = MakeStep("com.microsoft." + op, outputs);
  for (const auto& [name, value] : ints) SetInt(step, name, value);
  return step;
}

TestTensor Absent() {
  return {};
}
TestTensor Int32s(Shape shape, const std::vector<std::int32_t>& values) {
  return Tensor<std::int32_t>(proto::INT32, std::move(shape), values);
}
TestTensor ByteValues(Shape shape, std::size_t count, std::uint8_t value = 0) {
  return Tensor<std::uint8_t>(proto::UINT8, std::move(shape), std::vector<std::uint8_t>(count, value));
}
// Values between -1 and 1.
TestTensor Waves(const Shape& shape) {
  TestTensor tensor = Counting(shape);
  std::vector<float> values = tensor.As<float>();
  for (float& value : values) value = std::sin(value);
  return Floats(shape, values);
}

// --- Attention ---

// x [2,3,4], weights [4,12], two heads of 2.
std::vector<TestTensor> AttentionInputs() {
  return {Waves({2, 3, 4}), Waves({4, 12}), Waves({12})};
}
std::vector<TestTensor> Replaced(std::vector<TestTensor> in, std::size_t index, TestTensor value) {
  in.resize(std::max(in.size(), index + 1));
  in[index] = std::move(value);
  return in;
}
const proto::Step& TwoHeads() {
  static const proto::Step kStep = Microsoft("Attention", {{"num_heads", 2}});
  return kStep;
}

TEST(FusedAttention, RefusesHeadsAndWidthsThatDoNotDivide) {
  ExpectError(Microsoft("Attention"), AttentionInputs(), "num_heads is 0");
  ExpectError(Microsoft("Attention", {{"num_heads", -1}}), AttentionInputs(), "num_heads is -1");
  ExpectError(Microsoft("Attention", {{"num_heads", kHugeSize}}), AttentionInputs(), "do not split");
  ExpectError(Microsoft("Attention", {{"num_heads", 3}}), AttentionInputs(), "do not split");
  ExpectError(TwoHeads(), {Waves({2, 3, 4}), Waves({4, 13})}, "do not split");
  ExpectError(TwoHeads(), {Waves({2, 3, 4}), Waves({4, 0})}, "do not split");
  ExpectError(TwoHeads(), {Waves({2, 3, 4}), Waves({5, 12})}, "input [2,3,4]");
  ExpectError(TwoHeads(), {Waves({3, 4}), Waves({4, 12})}, "input [3,4]");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 2, Waves({11})), "bias [11]");
  const std::int64_t low = std::numeric_limits<std::int64_t>::min();
  for (const auto& widths : std::vector<std::vector<std::int64_t>>{{4, 4},
                                                                   {4, 4, 5},
                                                                   {2, 6, 4},
                                                                   {-4, -4, 20},
                                                                   {0, 0, 12},
                                                                   {low, low, 12},
                                                                   {kHugeSize, kHugeSize, 4}}) {
    proto::Step step = TwoHeads();
    SetInts(step, "qkv_hidden_sizes", widths);
    ExpectError(step, AttentionInputs(), "do not split");
  }
}

TEST(FusedAttention, RefusesByNameWhatItDoesNotDo) {
  ExpectError(Microsoft("Attention", {{"num_heads", 2}, {"do_rotary", 1}}), AttentionInputs(), "do_rotary");
  ExpectError(Microsoft("Attention", {{"num_heads", 2}, {"past_present_share_buffer", 1}}), AttentionInputs(),
              "past_present_share_buffer");
  ExpectError(Microsoft("Attention", {{"num_heads", 2}, {"new_mode", 1}}), AttentionInputs(), "'new_mode'");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 6, Int32s({1}, {0})), "past_sequence_length");
  ExpectError(TwoHeads(),
              Replaced(AttentionInputs(), 3, Int32s({2, 1, 8, 8}, std::vector<std::int32_t>(128, 1))),
              "mask_index [2,1,8,8]");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 3, Int32s({8}, std::vector<std::int32_t>(8, 1))),
              "mask_index [8]");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 3, Longs({2}, {1, 1})), "put a Cast before it");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 5, Waves({2, 2, 3, 4})), "attention_bias");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 5, Waves({3, 3})), "attention_bias");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 4, Waves({2, 2, 2, 5, 3})), "past [2,2,2,5,3]");
  ExpectError(TwoHeads(), Replaced(AttentionInputs(), 4, Waves({2, 2, 5, 2})), "past [2,2,5,2]");
}

TEST(FusedAttention, LengthsThatAClientSendsAreHeldToTheSequence) {
  const auto run = [](const std::vector<std::int32_t>& ends) {
    const auto size = static_cast<std::int64_t>(ends.size());
    const auto out = RunOp(TwoHeads(), Replaced(AttentionInputs(), 3, Int32s({size}, ends)));
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() ? (*out)[0].As<float>() : std::vector<float>();
  };
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(run({kMost, 3}), run({3, 3}));
  EXPECT_EQ(run({-kMost, 0}), run({0, 0}));
  EXPECT_EQ(run({3, 3, -kMost, kMost}), run({3, 3, 0, 3}));
  EXPECT_NE(run({2, 3}), run({3, 3}));
}

TEST(FusedAttention, AMaskIsAddedToTheBias) {
  std::vector<TestTensor> both = Replaced(AttentionInputs(), 3, Int32s({2, 3}, {1, 1, 0, 1, 1, 1}));
  both = Replaced(both, 5, Waves({1, 2, 3, 3}));
  std::vector<float> sum;
  const std::vector<float> bias = both[5].As<float>();
  for (std::size_t i = 0; i < 36; ++i) sum.push_back(bias[i % 18] + (i < 18 && i % 3 == 2 ? -10000 : 0));
  const auto masked = RunOp(TwoHeads(), both);
  const auto summed = RunOp(TwoHeads(), Replaced(AttentionInputs(), 5, Floats({2, 2, 3, 3}, sum)));
  ASSERT_TRUE(masked.ok() && summed.ok()) << masked.status() << summed.status();
  EXPECT_EQ((*masked)[0].As<float>(), (*summed)[0].As<float>());
}

std::vector<TestTensor> HeadInputs() {
  return {Waves({2, 3, 4}), Waves({2, 5, 4}), Waves({2, 5, 6})};
}
const proto::Step& TwoReadyHeads() {
  static const proto::Step kStep = Microsoft("MultiHeadAttention", {{"num_heads", 2}});
  return kStep;
}

TEST(MultiHeadAttention, RefusesWhatDoesNotBelongTogether) {
  const proto::Step& step = TwoReadyHeads();
  ExpectError(Microsoft("MultiHeadAttention"), HeadInputs(), "num_heads is 0");
  ExpectError(Microsoft("MultiHeadAttention", {{"num_heads", 3}}), HeadInputs(), "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 1, Waves({1, 5, 4})), "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 1, Waves({2, 4, 4})), "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 2, Waves({2, 5, 5})), "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 2, Waves({2, 2, 5, 2})), "do not belong together");
  ExpectError(step, Replaced(Replaced(HeadInputs(), 1, Waves({2, 5, 2, 2})), 2, Waves({2, 5, 2, 2})),
              "do not belong together");
  ExpectError(step, Replaced(HeadInputs(), 3, Waves({13})), "bias [13] must be [14]");
  ExpectError(step, Replaced(HeadInputs(), 4, Int32s({2, 3}, {1, 1, 1, 1, 1, 1})), "key_padding_mask [2,3]");
  ExpectError(step, Replaced(HeadInputs(), 5, Waves({2, 2, 3, 4})), "attention_bias");
  ExpectError(step, Replaced(HeadInputs(), 6, Waves({2, 2, 7, 2})), "come together");
  ExpectError(step, Replaced(Replaced(HeadInputs(), 6, Waves({2, 2, 7, 2})), 7, Waves({2, 2, 6, 3})),
              "past_value");
}

TEST(MultiHeadAttention, RefusesByNameWhatItDoesNotDo) {
  const proto::Step& step = TwoReadyHeads();
  ExpectError(step, {Waves({2, 3, 2, 3, 2})}, "packed queries, keys and values");
  ExpectError(step, {Waves({2, 3, 4}), Waves({2, 5, 2, 2, 2})}, "without a value");
  ExpectError(step, Replaced(HeadInputs(), 8, Int32s({1}, {0})), "past_sequence_length");
  ExpectError(step, Replaced(HeadInputs(), 9, Int32s({1}, {0})), "cache_indirection");
  ExpectError(Microsoft("MultiHeadAttention", {{"num_heads", 2}}, 4), HeadInputs(), "output 3 (qk)");
  ExpectError(Microsoft("MultiHeadAttention", {{"num_heads", 2}, {"window", 1}}), HeadInputs(), "'window'");
}

// Keys and values that lie head by head give what they give row by row, with the bias too.
TEST(MultiHeadAttention, TurnedKeysTakeTheBiasAsFlatOnesDo) {
  std::vector<TestTensor> flat = HeadInputs();
  flat.push_back(Waves({14}));
  std::vector<TestTensor> turned = flat;
  for (std::size_t i : {1, 2}) {
    const std::int64_t size = flat[i].shape[2] / 2;
    const std::vector<float> from = flat[i].As<float>();
    std::vector<float> to(from.size());
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t s = 0; s < 5; ++s)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t e = 0; e < size; ++e)
            to[static_cast<std::size_t>(((b * 2 + h) * 5 + s) * size + e)] =
                from[static_cast<std::size_t>(((b * 5 + s) * 2 + h) * size + e)];
    turned[i] = Floats({2, 2, 5, size}, to);
  }
  const auto one = RunOp(TwoReadyHeads(), flat);
  const auto other = RunOp(TwoReadyHeads(), turned);
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  EXPECT_EQ((*one)[0].As<float>(), (*other)[0].As<float>());
}

// From 8 queries on FP32 is computed by products of whole heads, and FP64 row by row as fewer queries are: both agree.
TEST(StandardAttention, ManyQueriesAreAnsweredAsFewAre) {
  const auto in_type = [](proto::DataType type, const std::vector<Shape>& shapes) {
    std::vector<TestTensor> in;
    for (const Shape& shape : shapes) {
      in.push_back(Waves(shape));
      const std::vector<float> values = in.back().As<float>();
      if (type == proto::FP64)
        in.back() = Tensor<double>(type, shape, std::vector<double>(values.begin(), values.end()));
    }
    return in;
  };
  struct Form {
    std::vector<Shape> shapes;
    bool causal;
    float softcap;
    std::int64_t shown;
  };
  for (const Form& form : {Form{{{2, 3, 9, 4}, {2, 3, 11, 4}, {2, 3, 11, 5}}, false, 0, 0},
                           Form{{{2, 3, 9, 4}, {2, 3, 9, 4}, {2, 3, 9, 5}, {9, 9}}, true, 0, 3},
                           Form{{{2, 8, 12}, {2, 8, 12}, {2, 8, 6}, {2, 3, 8, 8}}, false, 2, 1},
                           Form{{{1, 64, 12}, {1, 5, 12}, {1, 5, 12}}, false, 0, 2}}) {
    proto::Step step = MakeStep("Attention", 4);
    SetInt(step, "is_causal", form.causal ? 1 : 0);
    SetInt(step, "q_num_heads", 3);
    SetInt(step, "kv_num_heads", 3);
    SetInt(step, "qk_matmul_output_mode", form.shown);
    SetFloat(step, "softcap", form.softcap);
    const auto blocks = RunOp(step, in_type(proto::FP32, form.shapes), 23);
    const auto rows = RunOp(step, in_type(proto::FP64, form.shapes), 23);
    ASSERT_TRUE(blocks.ok() && rows.ok()) << blocks.status() << rows.status();
    for (std::size_t o = 0; o < 4; ++o) {
      const std::vector<float> have = (*blocks)[o].As<float>();
      const std::vector<double> want = (*rows)[o].As<double>();
      ASSERT_EQ(have.size(), want.size());
      for (std::size_t i = 0; i < have.size(); ++i) {
        if (std::isfinite(want[i])) {
          ASSERT_NEAR(static_cast<double>(have[i]), want[i], 1e-5) << o << " " << i;
        }
      }
    }
  }
}

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
