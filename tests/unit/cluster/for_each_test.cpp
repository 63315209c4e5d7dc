#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cluster/workflow_schedule.hpp"

namespace troupe::cluster::for_each_test {
namespace {

proto::TensorSpec Spec(proto::DataType type, std::vector<std::int64_t> shape) {
  proto::TensorSpec spec;
  spec.set_name("t");
  spec.set_type(type);
  for (const std::int64_t size : shape) spec.add_shape(size);
  return spec;
}

TEST(ForEach, SplitsAndPutsTogetherAlongEveryDimension) {
  std::string bytes;
  for (char c = 0; c < 24; ++c) bytes.push_back(c);
  const proto::TensorSpec spec = Spec(proto::INT8, {2, 3, 4});
  for (std::uint32_t dimension = 0; dimension < 3; ++dimension) {
    SCOPED_TRACE(dimension);
    const auto plan = PlanForEach(spec, dimension);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->parts, static_cast<std::uint64_t>(spec.shape(static_cast<int>(dimension))));
    std::vector<std::string> parts;
    std::vector<proto::TensorSpec> specs;
    for (std::uint64_t i = 0; i < plan->parts; ++i) {
      parts.push_back(SlicePart(bytes, *plan, i));
      specs.push_back(Spec(proto::INT8, plan->part_shape));
    }
    const auto whole = Concatenate(specs, {parts.begin(), parts.end()}, dimension);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(*whole, bytes);
    EXPECT_THAT(ConcatenatedSpec(specs, dimension)->shape(), testing::ElementsAre(2, 3, 4));
  }
  EXPECT_EQ(SlicePart(bytes, *PlanForEach(spec, 1), 2), std::string("\x08\x09\x0a\x0b\x14\x15\x16\x17"));
}

TEST(ForEach, PartsOfDifferentSizeGoTogether) {
  const auto whole =
      Concatenate({Spec(proto::INT16, {1, 2}), Spec(proto::INT16, {3, 2})}, {"aabb", "ccddeeffgghh"}, 0);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(*whole, "aabbccddeeffgghh");
}

TEST(ForEach, BadInput) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_FALSE(PlanForEach(Spec(proto::FP32, {2}), 1).ok());
  EXPECT_FALSE(PlanForEach(Spec(proto::BYTES, {2}), 0).ok());
  EXPECT_FALSE(PlanForEach(Spec(proto::FP32, {-1, 2}), 0).ok());
  EXPECT_FALSE(PlanForEach(Spec(proto::FP32, {2000, 2}), 0).ok());
  EXPECT_FALSE(PlanForEach(Spec(proto::FP32, {2, kHuge}), 0).ok());
  EXPECT_FALSE(PlanForEach(Spec(proto::FP32, {2, kHuge, kHuge}), 0).ok());
  EXPECT_FALSE(ConcatenatedSpec({}, 0).ok());
  EXPECT_FALSE(ConcatenatedSpec({Spec(proto::FP32, {1, 2}), Spec(proto::FP32, {1, 3})}, 0).ok());
  EXPECT_FALSE(ConcatenatedSpec({Spec(proto::FP32, {1, 2}), Spec(proto::INT32, {1, 2})}, 0).ok());
  EXPECT_FALSE(ConcatenatedSpec({Spec(proto::FP32, {1, 2}), Spec(proto::FP32, {1})}, 1).ok());
  EXPECT_FALSE(ConcatenatedSpec({Spec(proto::FP32, {1}), Spec(proto::FP32, {1, 2})}, 0).ok());
  EXPECT_FALSE(Concatenate({Spec(proto::INT8, {2})}, {"abc"}, 0).ok());
  EXPECT_FALSE(Concatenate({Spec(proto::INT8, {2})}, {}, 0).ok());
}

TEST(ForEach, MoreElementsThanCallsAreRefusedBeforeAnyIsCutOut) {
  const auto refused = PlanForEach(Spec(proto::FP32, {1'000'000, 4}), 0, 64);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      std::string(refused.status().message()),
      "tensor 't' of shape [1000000,4] would be 1000000 calls, one for each element along dimension 0; the step "
      "makes at most 64 calls ('most' of its for_each)");
  EXPECT_TRUE(PlanForEach(Spec(proto::FP32, {64, 4}), 0, 64).ok());
  EXPECT_FALSE(PlanForEach(Spec(proto::FP32, {65, 4}), 0, 64).ok());
  EXPECT_TRUE(PlanForEach(Spec(proto::FP32, {1024}), 0).ok());
  EXPECT_FALSE(PlanForEach(Spec(proto::FP32, {1025}), 0).ok()) << "the default";
}

TEST(ForEach, NoElementIsNoCall) {
  const auto plan = PlanForEach(Spec(proto::FP32, {0, 2}), 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->parts, 0u);
  proto::WorkflowStep step;
  step.set_name("s");
  step.mutable_for_each()->set_dimension(1);
  *step.add_outputs() = Spec(proto::FP32, {-1, 1, 10});
  *step.add_outputs() = Spec(proto::INT64, {4, -1});
  const auto outputs = OutputsOfNoCall(step);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 2u);
  EXPECT_THAT((*outputs)[0].shape(), testing::ElementsAre(0, 0, 10));
  EXPECT_THAT((*outputs)[1].shape(), testing::ElementsAre(4, 0));
  EXPECT_EQ((*outputs)[1].type(), proto::INT64);
  EXPECT_TRUE(CheckBytes((*outputs)[0], 0).ok()) << "it has no bytes";
  step.clear_outputs();
  EXPECT_EQ(OutputsOfNoCall(step).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::string(OutputsOfNoCall(step).status().message()).starts_with("it makes no call"))
      << "the run names the step";
}

}  // namespace
}  // namespace troupe::cluster::for_each_test
