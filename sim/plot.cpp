#include "sim/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace troupe::sim {

namespace {

constexpr double kWidth = 840, kHeight = 440;
constexpr double kLeft = 80, kRight = 640, kTop = 50, kBottom = 370;  // of the area between the axes
constexpr double kLogFrom = 50;
constexpr std::size_t kFewPlaces = 4;
constexpr std::size_t kMostLabels = 12;

// Okabe and Ito's colours, which colour-blind people tell apart.
constexpr std::array<const char*, 8> kColours = {"#0072B2", "#E69F00", "#009E73", "#D55E00",
                                                 "#CC79A7", "#56B4E9", "#7F7F7F", "#F0E442"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::optional<double> NumberOf(const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

// From the least to the most of the axis, on a line of pixels; ticks at round numbers.
class Scale {
 public:
  Scale(double least, double most, bool log) : log_(log) {
    if (log_) {
      low_ = std::pow(10, std::floor(std::log10(least)));
      high_ = std::pow(10, std::ceil(std::log10(most)));
      for (double tick = low_; tick <= high_ * 1.001; tick *= 10) ticks_.push_back(tick);
      return;
    }
    low_ = std::min(least, 0.0);
    high_ = most > low_ ? most : low_ + 1;
    const double rough = (high_ - low_) / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double digit = rough / power;
    const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
    low_ = std::floor(low_ / step) * step;
    high_ = std::ceil(high_ / step - 1e-9) * step;
    for (double tick = low_; tick <= high_ + step / 2; tick += step)
      ticks_.push_back(std::abs(tick) < step / 2 ? 0 : tick);
  }

  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }
  [[nodiscard]] double Base() const { return Y(log_ ? low_ : 0); }
  [[nodiscard]] double Y(double value) const {
    const double share = log_ ? std::log(std::max(value, low_) / low_) / std::log(high_ / low_)
                              : (value - low_) / (high_ - low_);
    return kBottom - (kBottom - kTop) * std::clamp(share, 0.0, 1.0);
  }

 private:
  bool log_;
  double low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

// Every value that the plot shows.
std::vector<double> ValuesOf(const Plot& plot) {
  std::vector<double> values;
  for (const PlotSeries& series : plot.series)
    for (const PlotPoint& point : series.points) {
      values.insert(values.end(), {point.mean, point.least, point.most});
      if (point.paper) values.push_back(*point.paper);
    }
  return values;
}

class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot), scale_(MakeScale(plot)), lines_(plot.HasLines()) {}

  std::string Render() {
    absl::StrAppendFormat(&out_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" "
                          "height=\"%g\" font-family=\"sans-serif\" font-size=\"13\">\n"
                          "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                          kWidth, kHeight, kWidth, kHeight);
    Text((kLeft + kRight) / 2, kTop / 2, "middle", plot_.title, " font-size=\"16\"");
    Axes();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) lines_ ? Line(i) : Bars(i);
    Legend();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  static Scale MakeScale(const Plot& plot) {
    auto values = ValuesOf(plot);
    if (plot.HasLogScale()) std::erase_if(values, [](double value) { return value <= 0; });
    if (values.empty()) values.push_back(0);
    const auto [least, most] = std::ranges::minmax(values);
    return {least, most, plot.HasLogScale()};
  }

  void Text(double x, double y, const char* anchor, const std::string& text, const std::string& more = "") {
    absl::StrAppendFormat(&out_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y, anchor,
                          more, Escaped(text));
  }
  void Stroke(double x1, double y1, double x2, double y2, const char* style) {
    absl::StrAppendFormat(&out_, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2,
                          y2, style);
  }

  // Of a place on the axis: lines by its number, bars side by side.
  [[nodiscard]] double X(std::size_t place) const {
    if (!lines_) return kLeft + GroupWidth() * (static_cast<double>(place) + 0.5);
    const double first = *NumberOf(plot_.xs.front());
    const double last = *NumberOf(plot_.xs.back());
    return kLeft + 20 + (kRight - kLeft - 40) * (*NumberOf(plot_.xs[place]) - first) / (last - first);
  }
  [[nodiscard]] double GroupWidth() const {
    return (kRight - kLeft) / static_cast<double>(std::max<std::size_t>(plot_.xs.size(), 1));
  }
  [[nodiscard]] static const char* Colour(std::size_t series) { return kColours[series % kColours.size()]; }

  void Axes() {
    for (const double tick : scale_.ticks()) {
      Stroke(kLeft, scale_.Y(tick), kRight, scale_.Y(tick), "stroke=\"#dddddd\"");
      Text(kLeft - 8, scale_.Y(tick) + 4, "end", absl::StrFormat("%g", tick));
    }
    Stroke(kLeft, kTop, kLeft, kBottom, "stroke=\"black\"");
    Stroke(kLeft, scale_.Base(), kRight, scale_.Base(), "stroke=\"black\"");
    const std::size_t every = (plot_.xs.size() + kMostLabels - 1) / kMostLabels;
    for (std::size_t i = 0; i < plot_.xs.size(); i += every) Text(X(i), kBottom + 20, "middle", plot_.xs[i]);
    Text((kLeft + kRight) / 2, kBottom + 48, "middle", plot_.x_axis);
    const double middle = (kTop + kBottom) / 2;
    Text(22, middle, "middle", plot_.HasLogScale() ? plot_.y_axis + " (logarithmic)" : plot_.y_axis,
         absl::StrFormat(" transform=\"rotate(-90 22 %g)\"", middle));
  }

  // The spread over the seeds, and the paper's value.
  void Marks(double x, const PlotPoint& point) {
    if (point.most > point.least) {
      Stroke(x, scale_.Y(point.least), x, scale_.Y(point.most), "stroke=\"#333333\"");
      for (const double end : {point.least, point.most})
        Stroke(x - 3, scale_.Y(end), x + 3, scale_.Y(end), "stroke=\"#333333\"");
    }
    if (!point.paper) return;
    const double y = scale_.Y(*point.paper);
    absl::StrAppendFormat(
        &out_, "<path d=\"M%.1f %.1f l5 5 l-5 5 l-5 -5 z\" fill=\"white\" stroke=\"black\"/>\n", x, y - 5);
  }

  void Bars(std::size_t index) {
    const double bar = GroupWidth() * 0.8 / static_cast<double>(plot_.series.size());
    for (const PlotPoint& point : plot_.series[index].points) {
      const double left = X(point.x) - GroupWidth() * 0.4 + bar * static_cast<double>(index);
      const double top = std::min(scale_.Y(point.mean), scale_.Base());
      absl::StrAppendFormat(&out_,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                            "fill=\"%s\"><title>%s: %g</title></rect>\n",
                            left, top, bar * 0.92, std::abs(scale_.Y(point.mean) - scale_.Base()),
                            Colour(index), Escaped(plot_.series[index].name), point.mean);
      Marks(left + bar * 0.46, point);
    }
  }

  void Line(std::size_t index) {
    std::string path;
    for (const PlotPoint& point : plot_.series[index].points)
      absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : " L", X(point.x),
                            scale_.Y(point.mean));
    absl::StrAppendFormat(&out_, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", path,
                          Colour(index));
    for (const PlotPoint& point : plot_.series[index].points) {
      absl::StrAppendFormat(
          &out_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>%s: %g</title></circle>\n",
          X(point.x), scale_.Y(point.mean), Colour(index), Escaped(plot_.series[index].name), point.mean);
      Marks(X(point.x), point);
    }
  }

  void Legend() {
    double y = kTop + 6;
    for (std::size_t i = 0; i < plot_.series.size(); ++i, y += 22) {
      absl::StrAppendFormat(&out_, "<rect x=\"%g\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>\n",
                            kRight + 20, y - 11, Colour(i));
      Text(kRight + 42, y + 1, "start", plot_.series[i].name);
    }
    const auto has_paper = [](const PlotSeries& series) {
      return std::ranges::any_of(series.points,
                                 [](const PlotPoint& point) { return point.paper.has_value(); });
    };
    if (!std::ranges::any_of(plot_.series, has_paper)) return;
    absl::StrAppendFormat(&out_,
                          "<path d=\"M%g %.1f l5 5 l-5 5 l-5 -5 z\" fill=\"white\" stroke=\"black\"/>\n",
                          kRight + 27, y - 9);
    Text(kRight + 42, y + 1, "start", "as published");
  }

  const Plot& plot_;
  const Scale scale_;
  const bool lines_;
  std::string out_;
};

struct PlotKey {
  std::string panel, x, series, quantity;
};
// Empty for a name that is not a valid place in a picture.
std::optional<PlotKey> KeyOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  const std::size_t last = parts.size() - 1;
  if (parts.size() < 3) return std::nullopt;
  if (parts.size() == 3) return PlotKey{parts[0], parts[1], parts[2], parts[2]};
  // The first number among the parts between is where it stands; else the last of them.
  const std::vector<std::string> between(parts.begin() + 1, parts.end() - 2);
  auto x = std::ranges::find_if(between, [](const auto& part) { return NumberOf(part).has_value(); });
  if (x == between.end()) --x;
  std::vector<std::string> panel = {parts.front()};
  for (auto it = between.begin(); it != between.end(); ++it)
    if (it != x) panel.push_back(*it);
  return PlotKey{absl::StrJoin(panel, "-"), *x, parts[last - 1], parts[last]};
}

}  // namespace

bool Plot::HasLines() const {
  if (xs.size() <= kFewPlaces) return false;
  std::optional<double> before;
  for (const auto& x : xs) {
    const auto here = NumberOf(x);
    if (!here || (before && *here <= *before)) return false;
    before = here;
  }
  return true;
}

bool Plot::HasLogScale() const {
  auto values = ValuesOf(*this);
  if (std::ranges::any_of(values, [](double value) { return value < 0; })) return false;
  std::erase(values, 0.0);
  if (values.empty()) return false;
  const auto [least, most] = std::ranges::minmax(values);
  return most > least * kLogFrom;
}

std::vector<Plot> PlotsOf(const std::vector<Figure>& figures, const std::string& x_axis) {
  std::vector<Plot> plots;
  for (const Figure& figure : figures) {
    const auto key = KeyOf(figure.name);
    if (!key || figure.values.empty()) continue;
    const auto name = absl::StrCat(key->panel, "-", key->quantity);
    auto plot = std::ranges::find(plots, name, &Plot::name);
    if (plot == plots.end()) {
      plots.push_back(
          {.name = name,
           .title = absl::StrCat(key->panel, ": ", key->quantity),
           .x_axis = x_axis,
           .y_axis = figure.unit.empty() ? key->quantity : absl::StrCat(key->quantity, ", ", figure.unit),
           .xs = {},
           .series = {}});
      plot = plots.end() - 1;
    }
    auto series = std::ranges::find(plot->series, key->series, &PlotSeries::name);
    if (series == plot->series.end()) series = plot->series.insert(series, {key->series, {}});
    const auto x = std::ranges::find(plot->xs, key->x);
    const auto place = static_cast<std::size_t>(x - plot->xs.begin());
    if (x == plot->xs.end()) plot->xs.push_back(key->x);
    series->points.push_back({.x = place,
                              .mean = Mean(figure.values),
                              .least = *std::ranges::min_element(figure.values),
                              .most = *std::ranges::max_element(figure.values),
                              .paper = figure.paper});
  }
  return plots;
}

std::string RenderSvg(const Plot& plot) {
  return Drawing(plot).Render();
}

absl::Status WritePlots(const std::string& folder, const std::vector<Plot>& plots) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // what is wrong with it shows below
  for (const Plot& plot : plots) {
    const auto path = absl::StrCat(folder, "/", plot.name, ".svg");
    std::ofstream file(path, std::ios::trunc);
    file << RenderSvg(plot);
    file.close();
    if (!file)
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", path, ": can its folder be made there, and is it yours?"));
  }
  return absl::OkStatus();
}

}  // namespace troupe::sim
