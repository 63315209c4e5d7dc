#include "gpu/import/open_dimensions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace troupe::gpu {
namespace {

using testing::ElementsAre;

proto::TensorSpec SpecOf(const std::string& name, std::initializer_list<std::int64_t> shape) {
  proto::TensorSpec spec;
  spec.set_name(name);
  for (const std::int64_t size : shape) spec.add_shape(size);
  return spec;
}

// A decoder with a cache: batch, new tokens, past tokens, all tokens.
OpenDimensions Decoder() {
  OpenDimensions open;
  open.AddInput(SpecOf("tokens", {-1, -1}), std::vector<std::string>{"batch", "length"});
  open.AddInput(SpecOf("mask", {-1, -1}), std::vector<std::string>{"batch", "total"});
  open.AddInput(SpecOf("key", {-1, 2, -1, 8}), std::vector<std::string>{"batch", "", "past", ""});
  return open;
}

std::vector<std::int64_t> ShapeOf(const proto::TensorSpec& spec) {
  return {spec.shape().begin(), spec.shape().end()};
}

TEST(OpenDimensions, OneNameIsOneSize) {
  const OpenDimensions open = Decoder();
  EXPECT_EQ(open.symbols(), 4);
  const OpenDimensions::Sizes sizes = {3, 5, 7, 9};
  EXPECT_THAT(ShapeOf(open.With(sizes, SpecOf("tokens", {-1, -1}))), ElementsAre(3, 5));
  EXPECT_THAT(ShapeOf(open.With(sizes, SpecOf("mask", {-1, -1}))), ElementsAre(3, 7));
  EXPECT_THAT(ShapeOf(open.With(sizes, SpecOf("key", {-1, 2, -1, 8}))), ElementsAre(3, 2, 9, 8));
}

TEST(OpenDimensions, DimensionsWithoutANameAreSizesOfTheirOwn) {
  OpenDimensions open;
  open.AddInput(SpecOf("x", {-1, -1, 4}), std::vector<std::string>{"", "", ""});
  EXPECT_EQ(open.symbols(), 2);
}

TEST(OpenDimensions, SizesAreAlikeFirstAndThenOneIsTheSumOfTwoOthers) {
  const OpenDimensions open = Decoder();
  const auto trials = open.Trials();
  EXPECT_THAT(open.SizesOf(trials.front()), ElementsAre(1, 1, 1, 1));
  std::optional<std::size_t> alike, sum;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const auto sizes = open.SizesOf(trials[i]);
    if (!alike && trials[i].twice.empty() && trials[i].size == 512) alike = i;
    if (!sum && sizes[2] == sizes[1] + sizes[3]) sum = i;
  }
  ASSERT_TRUE(alike && sum);
  EXPECT_LT(*alike, *sum);
}

TEST(OpenDimensions, RowsAreNotTwiceAsManyAsAnythingElse) {
  for (const auto& trial : Decoder().Trials()) EXPECT_THAT(trial.twice, testing::Not(testing::Contains(0)));
}

TEST(OpenDimensions, TheTrialsAreBoundedWhateverTheModelHas) {
  OpenDimensions open;
  for (int i = 0; i < 1000; ++i)
    open.AddInput(SpecOf(std::to_string(i), {-1, -1}), std::vector<std::string>{"", ""});
  EXPECT_EQ(open.symbols(), 2000);
  EXPECT_LE(open.Trials().size(), 120u);
}

}  // namespace
}  // namespace troupe::gpu
