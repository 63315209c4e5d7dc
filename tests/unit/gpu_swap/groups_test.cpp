#include "gpu/swap/groups.hpp"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;

// Only what its steps read matters here.
class ReadingPlan : public DevicePlan {
 public:
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  explicit ReadingPlan(std::vector<Ranges> steps) : steps_(std::move(steps)) {}
  [[nodiscard]] std::span<const proto::TensorSpec> inputs() const override { return {}; }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return {}; }
  [[nodiscard]] Bytes input_bytes(std::size_t) const override { return Bytes(0); }
  [[nodiscard]] Bytes output_bytes(std::size_t) const override { return Bytes(0); }
  [[nodiscard]] Bytes weights_bytes() const override { return Bytes(0); }
  [[nodiscard]] Bytes activation_bytes() const override { return Bytes(0); }
  [[nodiscard]] std::size_t step_count() const override { return steps_.size(); }
  [[nodiscard]] std::span<const std::pair<std::uint64_t, std::uint64_t>> step_weights(
      std::size_t step) const override {
    return steps_[step];
  }

 private:
  std::vector<Ranges> steps_;
};

TEST(CutEvenly, CoversAllWeightsInOrder) {
  EXPECT_THAT(CutEvenly(Bytes(10), Bytes(4)), ElementsAre(Group{0, 4}, Group{4, 4}, Group{8, 2}));
  EXPECT_THAT(CutEvenly(Bytes(8), Bytes(4)), ElementsAre(Group{0, 4}, Group{4, 4}));
  EXPECT_THAT(CutEvenly(Bytes(3), Bytes(4)), ElementsAre(Group{0, 3}));
  EXPECT_THAT(CutEvenly(Bytes(0), Bytes(4)), ElementsAre(Group{0, 0}));
}

TEST(CutByTensor, GivesATensorWhatLiesBehindIt) {
  proto::Model model;
  for (const auto& [offset, length] :
       std::vector<std::pair<int, int>>{{64, 10}, {0, 50}, {64, 4}, {128, 0}, {192, 64}}) {
    auto* weight = model.add_weights();
    weight->set_offset(static_cast<std::uint64_t>(offset));
    weight->set_length(static_cast<std::uint64_t>(length));
  }
  EXPECT_THAT(CutByTensor(model, Bytes(256)), ElementsAre(Group{0, 64}, Group{64, 128}, Group{192, 64}));
  EXPECT_THAT(CutByTensor(proto::Model(), Bytes(256)), ElementsAre(Group{0, 256}));
  EXPECT_THAT(CutByTensor(proto::Model(), Bytes(0)), ElementsAre(Group{0, 0}));
}

TEST(GroupsNeeded, AreThoseUpToTheLastByteThatAStepReads) {
  const auto groups = CutEvenly(Bytes(100), Bytes(10));
  const ReadingPlan plan({{}, {{0, 1}}, {{0, 10}}, {{9, 2}}, {{95, 5}, {3, 4}}, {{50, 0}}, {{0, 100}}});
  EXPECT_THAT(GroupsNeeded(plan, groups), ElementsAre(0, 1, 1, 2, 10, 0, 10));
  EXPECT_THAT(GroupsNeeded(plan, CutEvenly(Bytes(100), Bytes(1000))), ElementsAre(0, 1, 1, 1, 1, 0, 1));
}

}  // namespace
}  // namespace troupe::gpu
