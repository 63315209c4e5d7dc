// Packing: derivable, equal in result, and refused where it was tampered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu {
namespace {

using testing::HasSubstr;

// Convolution, pooling and a classifier over them, with a weight that two steps share.
ModelBuilder SmallNetwork(std::int64_t batch) {
  ModelBuilder builder;
  builder.Input("x", {batch, 3, 12, 12});
  auto& conv = builder.Step("Conv", {"x", builder.Random({20, 3, 3, 3}), builder.Random({20})}, "a");
  conv.set_activation("Relu");
  const std::string shared = builder.Random({20, 20, 3, 3});
  for (int i = 0; i < 2; ++i) {
    auto& step =
        builder.Step("Conv", {std::string(1, static_cast<char>('a' + i)), shared}, i == 0 ? "b" : "c");
    ModelBuilder::Set(step, "pads", {1, 1, 1, 1});
  }
  auto& residual = builder.Step("Conv", {"c", builder.Random({20, 20, 1, 1}), "", "a"}, "d");
  residual.set_activation("Relu");
  auto& concat = builder.Step("Concat", {"d", "b"}, "e");
  ModelBuilder::Set(concat, "axis", std::int64_t{1});
  builder.Step("GlobalAveragePool", {"e"}, "f");
  builder.Step("Flatten", {"f"}, "g");
  auto& gemm = builder.Step("Gemm", {"g", builder.Random({70, 40}), builder.Random({70})}, "y");
  ModelBuilder::Set(gemm, "transB", std::int64_t{1});
  builder.Output("y");
  return builder;
}

std::vector<float> Outputs(const proto::Model& model, std::span<const std::byte> weights,
                           ModelBuilder& builder, int threads) {
  auto plan = Plan::Build(model, weights, builder.input_specs(), threads);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  const auto& shape = builder.model().inputs(0).shape();
  const auto x = ModelBuilder().RandomValues({shape.begin(), shape.end()});
  const auto result = RunPlan(**plan, weights, {std::as_bytes(std::span(x))});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->As<float>(0) : std::vector<float>();
}

TEST(PackModel, GivesTheSameResultsForEveryBatch) {
  ModelBuilder one = SmallNetwork(1);
  const auto packed = PackModel(one.model(), one.weights(), one.input_specs());
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->model.packed_for(), PackTarget());
  EXPECT_EQ(packed->model.weights_bytes(), packed->weights.size());
  int laid_out = 0;
  for (const auto& weight : packed->model.weights()) laid_out += weight.layout().empty() ? 0 : 1;
  EXPECT_GE(laid_out, 2);
  for (std::int64_t batch : {1, 2, 5}) {
    ModelBuilder builder = SmallNetwork(batch);
    proto::Model model = packed->model;
    *model.mutable_inputs() = builder.model().inputs();
    const auto expected = Outputs(builder.model(), builder.weights(), builder, 1);
    const auto values = Outputs(model, packed->weights, builder, 2);
    ASSERT_EQ(values.size(), static_cast<std::size_t>(batch * 70));
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-3) << i;
  }
}

TEST(PackModel, IsDerivable) {
  ModelBuilder builder = SmallNetwork(1);
  const auto first = PackModel(builder.model(), builder.weights(), builder.input_specs());
  const auto second = PackModel(builder.model(), builder.weights(), builder.input_specs());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->weights, second->weights);
  Sha256 digest;
  digest.Update(first->weights);
  EXPECT_EQ(first->model.weights_digest(), digest.Finish());
  EXPECT_FALSE(PackModel(first->model, first->weights, builder.input_specs()).ok());
}

class KeptOutput final : public WeightsOutput {
 public:
  absl::Status Append(std::span<const std::byte> bytes) override {
    if (all.size() + bytes.size() > most) return absl::ResourceExhaustedError("the disk is full");
    all.insert(all.end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  absl::StatusOr<std::span<const std::byte>> Read() override { return all; }
  std::vector<std::byte> all;
  std::size_t most = SIZE_MAX;
};

TEST(PackModel, WritesToAnOutputWhatItWouldKeep) {
  ModelBuilder builder = SmallNetwork(1);
  const auto kept = PackModel(builder.model(), builder.weights(), builder.input_specs());
  KeptOutput output;
  const auto written = PackModel(builder.model(), builder.weights(), builder.input_specs(), &output);
  ASSERT_TRUE(kept.ok() && written.ok()) << written.status();
  EXPECT_TRUE(written->weights.empty());
  EXPECT_EQ(output.all, kept->weights);
  EXPECT_EQ(written->model.SerializeAsString(), kept->model.SerializeAsString());
  KeptOutput full;
  full.most = kept->weights.size() - 1;
  const auto failed = PackModel(builder.model(), builder.weights(), builder.input_specs(), &full);
  EXPECT_TRUE(absl::IsResourceExhausted(failed.status())) << failed.status();
}

TEST(PackModel, SaysBeforeWhetherInputsFit) {
  ModelBuilder builder;
  builder.Input("x", {1, 1, 8, 8});
  builder.Step("Conv", {"x", builder.Random({1, 1, 5, 5})}, "y");
  builder.Output("y");
  auto inputs =
      std::vector<proto::TensorSpec>(builder.model().inputs().begin(), builder.model().inputs().end());
  EXPECT_TRUE(FitsInputs(builder.model(), builder.weights(), inputs).ok());
  inputs[0].set_shape(2, 1);
  inputs[0].set_shape(3, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(FitsInputs(builder.model(), builder.weights(), inputs)));
}

TEST(PackModel, KeepsTheOrderOfFirstUse) {
  ModelBuilder builder = SmallNetwork(1);
  const auto packed = PackModel(builder.model(), builder.weights(), builder.input_specs());
  ASSERT_TRUE(packed.ok());
  std::uint64_t end = 0;
  for (int i = 0; i < packed->model.weights_size(); ++i) {
    EXPECT_EQ(packed->model.weights(i).name(), builder.model().weights(i).name());
    EXPECT_GE(packed->model.weights(i).offset(), end);
    end = packed->model.weights(i).offset() + packed->model.weights(i).length();
  }
}

TEST(PackModel, OtherMachinesAndTamperedLayoutsAreRefused) {
  ModelBuilder builder = SmallNetwork(1);
  const auto packed = PackModel(builder.model(), builder.weights(), builder.input_specs());
  ASSERT_TRUE(packed.ok());
  proto::Model foreign = packed->model;
  foreign.set_packed_for("cpu-other/1");
  const auto plan = Plan::Build(foreign, packed->weights, builder.input_specs(), 1);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  int index = 0;
  while (packed->model.weights(index).layout().empty()) ++index;
  const std::string layout = packed->model.weights(index).layout();
  // Every field of the layout, set to values that would send a kernel out of its memory.
  for (std::size_t at = 0; at + 8 <= layout.size(); at += 8) {
    for (std::int64_t value : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{7}, std::int64_t{1} << 40}) {
      std::string changed = layout;
      std::memcpy(changed.data() + at, &value, sizeof(value));
      if (changed == layout) continue;
      proto::Model model = packed->model;
      model.mutable_weights(index)->set_layout(changed);
      const auto refused = Plan::Build(model, packed->weights, builder.input_specs(), 1);
      EXPECT_FALSE(refused.ok()) << "word " << at / 8 << " = " << value;
    }
  }
  for (std::size_t size : {std::size_t{1}, std::size_t{8}, layout.size() - 8}) {
    proto::Model model = packed->model;
    model.mutable_weights(index)->set_layout(layout.substr(0, size));
    EXPECT_FALSE(Plan::Build(model, packed->weights, builder.input_specs(), 1).ok()) << size;
  }
}

TEST(PackModel, ALayoutThatNoStepReadsIsRefused) {
  ModelBuilder builder = SmallNetwork(1);
  auto packed = PackModel(builder.model(), builder.weights(), builder.input_specs());
  ASSERT_TRUE(packed.ok());
  int index = 0;
  while (packed->model.weights(index).layout().empty()) ++index;
  auto& step = *packed->model.add_steps();
  step.set_op("Relu");
  step.set_name("thief");
  step.add_inputs(packed->model.weights(index).name());
  step.add_outputs("stolen");
  const auto plan = Plan::Build(packed->model, packed->weights, builder.input_specs(), 1);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("Relu 'thief'"));
}

}  // namespace
}  // namespace troupe::gpu
