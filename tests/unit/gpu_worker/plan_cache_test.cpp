#include "gpu/worker/plan_cache.hpp"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_device/small_model.hpp"

namespace troupe::gpu {
namespace {

using test::Spec;

class NoPlan : public DevicePlan {
 public:
  [[nodiscard]] std::span<const proto::TensorSpec> inputs() const override { return inputs_; }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return {}; }
  [[nodiscard]] Bytes input_bytes(std::size_t) const override { return {}; }
  [[nodiscard]] Bytes output_bytes(std::size_t) const override { return {}; }
  [[nodiscard]] Bytes weights_bytes() const override { return {}; }
  [[nodiscard]] Bytes activation_bytes() const override { return {}; }
  [[nodiscard]] std::size_t step_count() const override { return 0; }
  [[nodiscard]] std::span<const std::pair<std::uint64_t, std::uint64_t>> step_weights(
      std::size_t) const override {
    return {};
  }

 private:
  std::vector<proto::TensorSpec> inputs_ = {Spec("x", {1})};
};

TEST(PlanCache, TheLeastRecentlyUsedGoes) {
  PlanCache cache(2);
  cache.Put("a", "da", std::make_shared<NoPlan>());
  cache.Put("b", "db", std::make_shared<NoPlan>());
  EXPECT_NE(cache.Find("a"), nullptr);
  cache.Put("c", "dc", std::make_shared<NoPlan>());
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.Find("b"), nullptr);
  EXPECT_NE(cache.Find("a"), nullptr);
  EXPECT_NE(cache.Find("c"), nullptr);
  const auto keys = cache.Keys();
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].digest(), "dc");
  EXPECT_EQ(keys[0].inputs(0).name(), "x");
}

TEST(PlanCache, ARunKeepsAPlanThatHasLeft) {
  PlanCache cache(1);
  cache.Put("a", "d", std::make_shared<NoPlan>());
  const auto held = cache.Find("a");
  cache.Put("b", "d", std::make_shared<NoPlan>());
  EXPECT_EQ(cache.Find("a"), nullptr);
  EXPECT_EQ(held->inputs().size(), 1u);
}

TEST(PlanCache, PuttingAgainReplaces) {
  PlanCache cache(2);
  cache.Put("a", "d", std::make_shared<NoPlan>());
  const auto first = cache.Find("a");
  cache.Put("a", "d", std::make_shared<NoPlan>());
  EXPECT_NE(cache.Find("a"), first);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(PlanKey, DependsOnShapesNotOnOrder) {
  const auto a = Spec("a", {1, 2});
  const auto b = Spec("b", {3});
  EXPECT_EQ(PlanKeyOf("d", {a, b}), PlanKeyOf("d", {b, a}));
  EXPECT_NE(PlanKeyOf("d", {a, b}), PlanKeyOf("d", {a}));
  EXPECT_NE(PlanKeyOf("d", {a}), PlanKeyOf("e", {a}));
  EXPECT_NE(PlanKeyOf("d", {Spec("a", {12})}), PlanKeyOf("d", {Spec("a", {1, 2})}));
  EXPECT_NE(PlanKeyOf("d", {Spec("a", {1})}), PlanKeyOf("d", {Spec("a", {1}, proto::INT8)}));
  // A name that looks like two inputs stays one.
  EXPECT_NE(PlanKeyOf("d", {Spec("a=11[]|1:b", {})}), PlanKeyOf("d", {Spec("a", {}), Spec("b", {})}));
}

}  // namespace
}  // namespace troupe::gpu
