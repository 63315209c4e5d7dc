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
  cache.Put("a", "da", proto::PRECISION_FP32, std::make_shared<NoPlan>());
  cache.Put("b", "db", proto::PRECISION_FP32, std::make_shared<NoPlan>());
  EXPECT_NE(cache.Find("a"), nullptr);
  cache.Put("c", "dc", proto::PRECISION_TF32, std::make_shared<NoPlan>());
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.Find("b"), nullptr);
  EXPECT_NE(cache.Find("a"), nullptr);
  EXPECT_NE(cache.Find("c"), nullptr);
  const auto keys = cache.Keys();
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].digest(), "dc");
  EXPECT_EQ(keys[0].precision(), proto::PRECISION_TF32);
  EXPECT_EQ(keys[0].inputs(0).name(), "x");
}

TEST(PlanCache, ARunKeepsAPlanThatHasLeft) {
  PlanCache cache(1);
  cache.Put("a", "d", proto::PRECISION_FP32, std::make_shared<NoPlan>());
  const auto held = cache.Find("a");
  cache.Put("b", "d", proto::PRECISION_FP32, std::make_shared<NoPlan>());
  EXPECT_EQ(cache.Find("a"), nullptr);
  EXPECT_EQ(held->inputs().size(), 1u);
}

TEST(PlanCache, PuttingAgainReplaces) {
  PlanCache cache(2);
  cache.Put("a", "d", proto::PRECISION_FP32, std::make_shared<NoPlan>());
  const auto first = cache.Find("a");
  cache.Put("a", "d", proto::PRECISION_FP32, std::make_shared<NoPlan>());
  EXPECT_NE(cache.Find("a"), first);
  EXPECT_EQ(cache.size(), 1u);
}

std::string KeyOf(const std::string& digest, std::vector<proto::TensorSpec> inputs,
                  proto::Precision precision = proto::PRECISION_FP32) {
  return PlanKeyOf(digest, std::move(inputs), precision);
}

TEST(PlanKey, DependsOnShapesAndPrecisionNotOnOrder) {
  const auto a = Spec("a", {1, 2});
  const auto b = Spec("b", {3});
  EXPECT_EQ(KeyOf("d", {a, b}), KeyOf("d", {b, a}));
  EXPECT_NE(KeyOf("d", {a, b}), KeyOf("d", {a}));
  EXPECT_NE(KeyOf("d", {a}), KeyOf("e", {a}));
  EXPECT_NE(KeyOf("d", {Spec("a", {12})}), KeyOf("d", {Spec("a", {1, 2})}));
  EXPECT_NE(KeyOf("d", {Spec("a", {1})}), KeyOf("d", {Spec("a", {1}, proto::INT8)}));
  EXPECT_NE(KeyOf("d", {a}), KeyOf("d", {a}, proto::PRECISION_BF16));
  // Texts have plans by their room, whatever was in it.
  auto texts = Spec("a", {1}, proto::BYTES);
  const std::string none = KeyOf("d", {texts});
  texts.set_text_bytes(1024);
  EXPECT_NE(KeyOf("d", {texts}), none);
  // A name that looks like two inputs stays one.
  EXPECT_NE(KeyOf("d", {Spec("a=11[]|1:b", {})}), KeyOf("d", {Spec("a", {}), Spec("b", {})}));
}

}  // namespace
}  // namespace troupe::gpu
