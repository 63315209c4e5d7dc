// PLOT: figures as a picture like a paper's: grouped bars or lines over an axis, the spread over the seeds as
// whiskers, what the paper published as hollow diamonds. SVG, nothing else: it opens in any browser.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sim/report.hpp"

namespace troupe::sim {

struct PlotPoint {
  std::size_t x = 0;  // of Plot::xs
  double mean = 0, least = 0, most = 0;
  std::optional<double> paper{};
};
struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
};
struct Plot {
  std::string name;  // of its file, without .svg
  std::string title, x_axis, y_axis;
  std::vector<std::string> xs;  // in the order in which they stand
  std::vector<PlotSeries> series;

  // Lines when the places on the axis are numbers, in order, and more than four; bars otherwise.
  [[nodiscard]] bool HasLines() const;
  // The values differ by so much that the least of them could not be seen.
  [[nodiscard]] bool HasLogScale() const;
};

// By the names of the figures: "EXPERIMENT/[PANEL/...]X/SERIES/QUANTITY" (without a series when there are
// three parts only): a plot for each quantity and panel. `x_axis` says what X is.
[[nodiscard]] std::vector<Plot> PlotsOf(const std::vector<Figure>& figures, const std::string& x_axis);

[[nodiscard]] std::string RenderSvg(const Plot& plot);
// Each as FOLDER/NAME.svg; makes the folder. InvalidArgument when it cannot be written.
[[nodiscard]] absl::Status WritePlots(const std::string& folder, const std::vector<Plot>& plots);

}  // namespace troupe::sim
