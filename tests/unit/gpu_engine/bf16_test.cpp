// Weights that are packed in BF16: products and convolutions are what FP32 gives for factors that were rounded to BF16, since
// a product of two such numbers is exact in FP32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "gpu/ops/bfloat_rows.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/layout.hpp"
#include "proto/pack_target.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu::bf16_test {
namespace {

using Floats = std::vector<float>;

float Rounded(float value) {
  return BfloatToFloat(FloatToBfloat(value));
}

Floats Rounded(Floats values) {
  for (float& value : values) value = Rounded(value);
  return values;
}

// One step over the input x, the factor w and what else it reads.
struct Case {
  const char* name;
  Shape x, w;
  std::function<proto::Step&(ModelBuilder&, const std::string& w)> step;
  bool in_bf16 = true;  // else its weights stay FP32
};

struct Network {
  ModelBuilder builder;
  Floats x, w;
};

Network Make(const Case& c, bool rounded) {
  Network network;
  network.x = network.builder.RandomValues(c.x);
  network.w = network.builder.RandomValues(c.w);
  if (rounded) network.w = Rounded(network.w);
  network.builder.Input("x", c.x);
  c.step(network.builder, network.builder.Floats(c.w, network.w));
  network.builder.Output("y");
  return network;
}

PackedModel Pack(ModelBuilder& builder, proto::Precision precision) {
  proto::Model model = builder.model();
  model.set_precision(precision);
  auto packed = PackModel(model, builder.weights(), builder.input_specs());
  EXPECT_TRUE(packed.ok()) << packed.status();
  return packed.ok() ? *std::move(packed) : PackedModel();
}

Floats Answer(const proto::Model& model, const std::vector<std::byte>& weights, ModelBuilder& builder,
              const Floats& x, int threads) {
  auto plan = Plan::Build(model, weights, builder.input_specs(), threads);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  const auto result = RunPlan(**plan, weights, {std::as_bytes(std::span(x))});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->As<float>(0) : Floats();
}

void ExpectNear(const Floats& values, const Floats& expected) {
  ASSERT_EQ(values.size(), expected.size());
  ASSERT_FALSE(values.empty());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], 1e-4 + 1e-4 * std::abs(expected[i])) << "element " << i;
}

class Bf16 : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!ComputesBf16()) GTEST_SKIP() << "this processor does not compute in BF16";
  }
};

TEST_P(Bf16, IsFp32OfRoundedFactors) {
  const Case& c = GetParam();
  Network network = Make(c, false);
  const PackedModel packed = Pack(network.builder, proto::PRECISION_BF16);
  Network plain = Make(c, c.in_bf16);
  const Floats x = c.in_bf16 ? Rounded(network.x) : network.x;
  const Floats expected = Answer(plain.builder.model(), plain.builder.weights(), plain.builder, x, 1);
  for (const int threads : {1, 2}) {
    ExpectNear(Answer(packed.model, packed.weights, network.builder, network.x, threads), expected);
  }
  const PackedModel full = Pack(network.builder, proto::PRECISION_FP32);
  if (!c.in_bf16) {
    EXPECT_EQ(packed.weights.size(), full.weights.size());
    return;
  }
  EXPECT_LE(packed.model.weights(0).length(), full.model.weights(0).length() / 2 + 4096);
  EXPECT_LT(packed.weights.size(), full.weights.size());
}

proto::Step& Product(ModelBuilder& builder, const std::string& w) {
  return builder.Step("MatMul", {"x", w}, "y");
}

proto::Step& Convolved(ModelBuilder& builder, const std::string& w, std::int64_t channels,
                       std::int64_t groups = 1, std::string_view op = "Conv") {
  auto& step = builder.Step(op, {"x", w, builder.Random({channels})}, "y");
  ModelBuilder::Set(step, "pads", {1, 1, 1, 1});
  ModelBuilder::Set(step, "group", groups);
  return step;
}

const Case kCases[] = {
    {"product", {40, 64}, {64, 128}, Product},
    {"product_of_one_row", {1, 256}, {256, 192}, Product},
    {"product_of_one_row_in_a_part_of_a_block", {1, 48}, {48, 100}, Product},
    {"product_of_one_row_in_no_block", {1, 40}, {40, 100}, Product},
    {"product_of_odd_sizes", {3, 17, 33}, {33, 77}, Product},
    {"product_of_few_columns", {40, 64}, {64, 8}, Product, false},
    {"biased_relu",
     {40, 64},
     {64, 96},
     [](ModelBuilder& builder, const std::string& w) -> proto::Step& {
       auto& step = builder.Step("MatMul", {"x", w, builder.Random({96})}, "y");
       step.set_activation("Relu");
       return step;
     }},
    {"gemm",
     {64, 40},
     {96, 64},
     [](ModelBuilder& builder, const std::string& w) -> proto::Step& {
       auto& step = builder.Step("Gemm", {"x", w, builder.Random({40, 96})}, "y");
       ModelBuilder::Set(step, "transA", 1);
       ModelBuilder::Set(step, "transB", 1);
       ModelBuilder::SetFloat(step, "alpha", 0.5F);
       ModelBuilder::SetFloat(step, "beta", 2);
       return step;
     }},
    {"convolution",
     {2, 16, 9, 11},
     {48, 16, 3, 3},
     [](ModelBuilder& builder, const std::string& w) -> proto::Step& { return Convolved(builder, w, 48); }},
    {"convolution_of_an_image",
     {1, 3, 17, 19},
     {64, 3, 3, 3},
     [](ModelBuilder& builder, const std::string& w) -> proto::Step& { return Convolved(builder, w, 64); }},
    {"convolution_in_groups",
     {1, 64, 9, 9},
     {64, 16, 3, 3},
     [](ModelBuilder& builder, const std::string& w) -> proto::Step& {
       return Convolved(builder, w, 64, 4);
     }},
    {"convolution_with_residual",
     {1, 32, 9, 9},
     {32, 32, 3, 3},
     [](ModelBuilder& builder, const std::string& w) -> proto::Step& {
       auto& step = Convolved(builder, w, 32);
       step.add_inputs(builder.Random({1, 32, 9, 9}));
       step.set_activation("Relu");
       return step;
     }},
    {"transposed_convolution",
     {1, 16, 9, 9},
     {16, 32, 3, 3},
     [](ModelBuilder& builder, const std::string& w) -> proto::Step& {
       return Convolved(builder, w, 32, 1, "ConvTranspose");
     }},
    {"depthwise_convolution",
     {1, 32, 9, 9},
     {32, 1, 3, 3},
     [](ModelBuilder& builder, const std::string& w) -> proto::Step& {
       return Convolved(builder, w, 32, 32);
     },
     false},
};

INSTANTIATE_TEST_SUITE_P(All, Bf16, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

class Bf16Model : public testing::Test {
 protected:
  void SetUp() override {
    if (!ComputesBf16()) GTEST_SKIP() << "this processor does not compute in BF16";
    builder_.Input("x", {-1, 64});
    builder_.Step("MatMul", {"x", builder_.Random({64, 128})}, "h").set_activation("Relu");
    builder_.Step("MatMul", {"h", builder_.Random({128, 96})}, "y");
    builder_.Output("y");
  }
  std::vector<proto::TensorSpec> Inputs(std::int64_t rows) {
    auto inputs = builder_.input_specs();
    inputs[0].set_shape(0, rows);
    return inputs;
  }
  PackedModel Packed() {
    proto::Model model = builder_.model();
    model.set_precision(proto::PRECISION_BF16);
    return *PackModel(model, builder_.weights(), Inputs(1));
  }

  ModelBuilder builder_;
};

TEST_F(Bf16Model, IsPackedForATargetThatOlderVersionsTakeForAnother) {
  const PackedModel packed = Packed();
  EXPECT_EQ(packed.model.packed_for(), PackTarget() + "+bf16");
  EXPECT_TRUE(proto::IsPackedFor(packed.model.packed_for(), PackTarget()));
  EXPECT_FALSE(proto::IsPackedFor(packed.model.packed_for(), "cpu-other/1"));
  EXPECT_FALSE(proto::IsPackedFor("", PackTarget()));
}

TEST_F(Bf16Model, ServesRowsThatItWasNotPackedFor) {
  const PackedModel packed = Packed();
  for (const std::int64_t rows : {1, 3, 64}) {
    const auto inputs = Inputs(rows);
    const Floats x = ModelBuilder().RandomValues({rows, 64});
    Floats answers[2];
    const proto::Model* const models[] = {&packed.model, &builder_.model()};
    const std::vector<std::byte>* const blobs[] = {&packed.weights, &builder_.weights()};
    for (int k = 0; k < 2; ++k) {
      auto plan = Plan::Build(*models[k], *blobs[k], inputs, 2);
      ASSERT_TRUE(plan.ok()) << plan.status();
      answers[k] = RunPlan(**plan, *blobs[k], {std::as_bytes(std::span(x))})->As<float>(0);
    }
    ASSERT_EQ(answers[0].size(), static_cast<std::size_t>(rows * 96));
    double most = 0, size = 0;
    for (std::size_t i = 0; i < answers[0].size(); ++i) {
      most = std::max<double>(most, std::abs(answers[0][i] - answers[1][i]));
      size = std::max<double>(size, std::abs(answers[1][i]));
    }
    EXPECT_LT(most, 0.02 * size) << rows << " rows";
    EXPECT_GT(most, 0) << "it was computed in FP32";
  }
}

// A layout comes from a file: one of BF16 on a weight whose reader has none is an error, and so is a length of FP32.
TEST_F(Bf16Model, RefusesALayoutWhereItsReaderHasNone) {
  const PackedModel packed = Packed();
  proto::Model longer = packed.model;
  longer.mutable_weights(1)->set_length(2 * longer.weights(1).length());
  EXPECT_TRUE(absl::IsInvalidArgument(Plan::Build(longer, packed.weights, Inputs(1), 1).status()));
  proto::Model other = packed.model;
  other.mutable_steps(1)->set_op("Add");
  other.mutable_weights(1)->clear_shape();
  for (const std::int64_t dim : {128, 96}) other.mutable_weights(1)->add_shape(dim);
  const auto refused = Plan::Build(other, packed.weights, Inputs(1), 1);
  EXPECT_FALSE(refused.ok());
}

TEST(BfloatRows, RoundAsOneNumberIsRounded) {
  Floats values = {0.0F,
                   -0.0F,
                   1.0F,
                   1.00390625F,  // a tie, to even below
                   1.01171875F,  // a tie, to even above
                   std::numeric_limits<float>::infinity(),
                   -std::numeric_limits<float>::infinity(),
                   std::numeric_limits<float>::quiet_NaN(),
                   std::numeric_limits<float>::max(),
                   std::numeric_limits<float>::denorm_min(),
                   -3.4e-39F};
  const Floats random = ModelBuilder().RandomValues({70'001});
  values.insert(values.end(), random.begin(), random.end());
  std::vector<std::uint16_t> rounded(values.size());
  ToBfloats(values.data(), rounded.data(), static_cast<std::int64_t>(values.size()));
  Floats again(values.size());
  RoundToBfloats(values.data(), again.data(), static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(rounded[i], FloatToBfloat(values[i])) << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(again[i]), std::uint32_t{rounded[i]} << 16) << values[i];
  }
}

}  // namespace
}  // namespace troupe::gpu::bf16_test
