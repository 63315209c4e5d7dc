#include "shell/inputs/tensor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_join.h"
#include "shell/inputs/tensor_values.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;

TEST(Tensor, EveryHalfSurvivesAFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), half) << bits;
    }
  }
  EXPECT_EQ(FloatToHalf(1.0F), 0x3C00);
  EXPECT_EQ(FloatToHalf(65519.0F), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7C00);
  EXPECT_EQ(FloatToHalf(1.0F + 1.0F / 2048), 0x3C00) << "a tie goes to the even number";
  EXPECT_EQ(FloatToHalf(1.0F + 3.0F / 2048), 0x3C02);
}

TEST(Tensor, Bfloat16RoundsToEven) {
  EXPECT_EQ(FloatToBfloat16(1.0F), 0x3F80);
  EXPECT_EQ(Bfloat16ToFloat(0x3F80), 1.0F);
  EXPECT_EQ(FloatToBfloat16(1.0F + 1.0F / 256), 0x3F80);
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Tensor, ShapesAreBoundedBeforeTheyAreMultiplied) {
  EXPECT_EQ(*ElementCount({2, 3}), 6U);
  EXPECT_EQ(*ElementCount({}), 1U);
  EXPECT_EQ(*ElementCount({5, 0}), 0U);
  EXPECT_FALSE(ElementCount({0, 1LL << 62}).ok());
  EXPECT_FALSE(ElementCount({1LL << 40, 1LL << 40}).ok());
  EXPECT_FALSE(ElementCount({-1}).ok());
  EXPECT_FALSE(ElementCount(std::vector<std::int64_t>(33, 1)).ok());
  EXPECT_FALSE(MakeTensor(proto::FP32, {2}, "1234567").ok());
}

TEST(Tensor, AMisfitSaysWhatWasExpectedAndFound) {
  proto::TensorSpec declared;
  declared.set_type(proto::FP32);
  declared.add_shape(-1);
  declared.add_shape(8);
  auto found = declared;
  found.set_shape(0, 5);
  EXPECT_TRUE(CheckAgainst(declared, found).ok());
  found.set_shape(1, 9);
  EXPECT_THAT(std::string(CheckAgainst(declared, found).message()),
              HasSubstr("expected FP32 [-1,8], found FP32 [5,9]"));
  found = declared;
  found.set_type(proto::FP64);
  EXPECT_THAT(std::string(CheckAgainst(declared, found).message()), HasSubstr("found FP64"));
}

TEST(Tensor, BytesElementsMustAddUp) {
  std::string data;
  AppendBytesElement(data, "ab");
  AppendBytesElement(data, "");
  EXPECT_THAT(*BytesElements(data), testing::ElementsAre("ab", ""));
  EXPECT_FALSE(BytesElements(data.substr(0, data.size() - 1)).has_value());
  EXPECT_FALSE(BytesElements("\xFF\xFF\xFF\xFFx").has_value());
}

proto::Tensor Floats(const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
  auto tensor =
      MakeTensor(proto::FP32, shape,
                 std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  tensor->mutable_spec()->set_name("scores");
  return *tensor;
}

TEST(Tensor, SummariesShowSmallOnesWholeAndTheTopOfLargeRows) {
  const Style plain(false);
  EXPECT_EQ(SummariseTensor(Floats({1, 3}, {0.5, 0.25, NAN}), plain),
            "scores  FP32 [1,3]\n  0.5  0.25  nan\n");
  EXPECT_EQ(SummariseTensor(Floats({2, 2}, {1, 2, 3, 4}), plain), "scores  FP32 [2,2]\n  1  2\n  3  4\n");
  EXPECT_EQ(SummariseTensor(Floats({12, 2}, std::vector<float>(24)), plain),
            Cat("scores  FP32 [12,2]\n", absl::StrJoin(std::vector<std::string>(24, "  0"), ""), "\n"))
      << "12 lines of two are longer than one of 24";
  std::vector<float> values(60, 0.0F);
  values[7] = 3;
  values[30 + 9] = 5;
  const auto text = SummariseTensor(Floats({2, 30}, values), plain);
  EXPECT_THAT(text, HasSubstr("min 0, max 5"));
  EXPECT_THAT(text, HasSubstr("row 0 top  7 (3)  0 (0)"));
  EXPECT_THAT(text, HasSubstr("row 1 top  9 (5)"));
}

TEST(Tensor, DataShorterThanTheShapeIsNotReadBeyondItsEnd) {
  auto tensor = Floats({2, 30}, std::vector<float>(60));
  tensor.mutable_data()->mutable_inlined()->resize(13);
  EXPECT_EQ(TensorValues(tensor).size(), 3U);
  tensor.mutable_spec()->set_type(proto::BYTES);
  EXPECT_EQ(SummariseTensor(tensor, Style(false)).substr(0, 6), "scores");
}

TEST(Tensor, TextThatIsNoUtf8IsReplaced) {
  EXPECT_EQ(MakeUtf8("a\xFF\xC3"), "a??");
  EXPECT_EQ(MakeUtf8("ü€😀"), "ü€😀");
  EXPECT_EQ(MakeUtf8("\xED\xA0\x80"), "???") << "a surrogate";
}

}  // namespace
}  // namespace troupe::shell
