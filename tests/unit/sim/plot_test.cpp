#include "sim/plot.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace troupe::sim {
namespace {

Figure Measured(const std::string& name, std::vector<double> values, std::optional<double> paper = {}) {
  return {.name = name, .unit = "s", .values = std::move(values), .paper = paper, .baseline = {}};
}

std::size_t Times(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

TEST(Plots, FollowTheNamesOfTheFigures) {
  const auto plots = PlotsOf(
      {Measured("lalb-latency/15/lalb/mean_s", {1, 3}), Measured("lalb-latency/25/lalb/mean_s", {2}, 2.5),
       Measured("lalb-latency/25/troupe/mean_s", {4}), Measured("lalb-latency/25/troupe/reduction", {50}),
       Measured("day/10x/4/troupe/share", {0.5}), Measured("torpor/480/poisson/x/y", {1}),
       Measured("sweep/5/mean_s", {7}), Measured("empty/5/mean_s", {}), Measured("two/parts", {7})},
      "models");
  ASSERT_EQ(plots.size(), 5u);
  EXPECT_EQ(plots[0].name, "lalb-latency-mean_s");
  EXPECT_EQ(plots[0].x_axis, "models");
  EXPECT_EQ(plots[0].y_axis, "mean_s, s");
  EXPECT_EQ(plots[0].xs, (std::vector<std::string>{"15", "25"}));
  ASSERT_EQ(plots[0].series.size(), 2u);
  EXPECT_EQ(plots[0].series[0].name, "lalb");
  ASSERT_EQ(plots[0].series[0].points.size(), 2u);
  EXPECT_EQ(plots[0].series[0].points[0].mean, 2);
  EXPECT_EQ(plots[0].series[0].points[0].least, 1);
  EXPECT_EQ(plots[0].series[0].points[0].most, 3);
  EXPECT_EQ(plots[0].series[0].points[1].paper, 2.5);
  EXPECT_EQ(plots[0].series[1].points[0].x, 1u) << "the second place on the axis";
  EXPECT_EQ(plots[1].name, "lalb-latency-reduction");
  EXPECT_EQ(plots[2].name, "day-10x-share");
  EXPECT_EQ(plots[2].xs, std::vector<std::string>{"4"});
  EXPECT_EQ(plots[3].name, "torpor-poisson-y");
  EXPECT_EQ(plots[3].xs, std::vector<std::string>{"480"});
  EXPECT_EQ(plots[4].series[0].name, "mean_s");
}

TEST(Plots, AreBarsWithTheirHeightsByTheirValues) {
  const auto svg = RenderSvg(PlotsOf({Measured("e/a/one<&>/q", {5}), Measured("e/a/two/q", {10})}, "x")[0]);
  EXPECT_NE(svg.find("one&lt;&amp;&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("one<"), std::string::npos);
  EXPECT_NE(svg.find("height=\"160.0\""), std::string::npos) << svg;  // the bar is half as high as the axis
  EXPECT_NE(svg.find("height=\"320.0\""), std::string::npos) << svg;
  EXPECT_EQ(Times(svg, "<path"), 0u) << "without a published figure there are no lines";
}

TEST(Plots, AreLinesOverManyNumbersAndLogarithmicOverMagnitudes) {
  std::vector<Figure> figures;
  for (int x = 0; x < 6; ++x)
    figures.push_back(Measured("e/" + std::to_string(10 * x) + "/one/q", {std::pow(10.0, x)}, 1000.0));
  const auto plot = PlotsOf(figures, "x")[0];
  EXPECT_TRUE(plot.HasLines());
  EXPECT_TRUE(plot.HasLogScale());
  const auto svg = RenderSvg(plot);
  EXPECT_EQ(Times(svg, "<circle"), 6u);
  EXPECT_NE(svg.find("cy=\"370.0\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("cy=\"306.0\""), std::string::npos)
      << "each power of ten takes a fifth of the axis: " << svg;
  EXPECT_NE(svg.find("(logarithmic)"), std::string::npos);
  EXPECT_NE(svg.find("as published"), std::string::npos);
  figures.pop_back();
  figures.pop_back();
  EXPECT_FALSE(PlotsOf(figures, "x")[0].HasLines()) << "there are only four places";
}

TEST(Plots, AFolderThatCannotBeMadeIsNamed) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "plots";
  std::filesystem::remove_all(folder);
  const auto plots = PlotsOf({Measured("e/a/one/q", {5})}, "x");
  ASSERT_TRUE(WritePlots(folder.string() + "/deep", plots).ok());
  EXPECT_TRUE(std::filesystem::exists(folder / "deep" / "e-q.svg"));
  const auto status = WritePlots((folder / "deep" / "e-q.svg").string(), plots);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("e-q.svg/e-q.svg"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace troupe::sim
