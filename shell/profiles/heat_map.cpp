#include "shell/profiles/heat_map.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "shell/profiles/profile_panels.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

namespace {

constexpr int kCellWidth = 76, kCellHeight = 40;
constexpr int kLeft = 86, kTop = 84, kPanelHead = 30, kBelow = 62, kLegend = 130;
using Rgb = std::array<int, 3>;
constexpr Rgb kLow = {237, 244, 251}, kHigh = {8, 64, 129};

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(ForAbsl(Printable(text)),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string ColourAt(double part) {
  std::array<int, 3> mixed{};
  for (std::size_t i = 0; i < mixed.size(); ++i)
    mixed[i] = static_cast<int>(std::lround(kLow[i] + (kHigh[i] - kLow[i]) * part));
  return absl::StrFormat("#%02x%02x%02x", mixed[0], mixed[1], mixed[2]);
}

std::string Figure(double throughput) {
  return absl::StrFormat("%.*f", throughput >= 100 ? 0 : throughput >= 10 ? 1 : 2, throughput);
}

struct Text {
  int x = 0, y = 0;
  std::string style{};
  std::string text{};
};

void Add(std::string& out, const Text& text) {
  absl::StrAppendFormat(&out, "<text x=\"%d\" y=\"%d\" %s>%s</text>\n", text.x, text.y, text.style,
                        Escaped(text.text));
}

void AddCell(std::string& out, int x, int y, const proto::ProfileRow* row, double most) {
  const bool known = row != nullptr && row->throughput() > 0;
  const double part = known && most > 0 ? row->throughput() / most : 0;
  absl::StrAppendFormat(&out,
                        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#fff\">", x,
                        y, kCellWidth, kCellHeight, known ? ColourAt(part) : "url(#none)");
  if (row != nullptr && !row->reason().empty())
    absl::StrAppendFormat(&out, "<title>%s</title>", Escaped(row->reason()));
  out += "</rect>\n";
  const std::string text = known            ? Figure(row->throughput())
                           : row != nullptr ? std::string("failed")
                                            : std::string();
  if (text.empty()) return;
  const bool interpolated = known && row->state() == proto::PROFILE_ROW_INTERPOLATED;
  Add(out, {x + kCellWidth / 2, y + kCellHeight / 2 + 5,
            Cat("text-anchor=\"middle\" fill=\"", part > 0.55 ? "#fff" : "#222", "\"",
                interpolated ? " font-style=\"italic\"" : ""),
            interpolated ? Cat("~", text) : text});
}

void AddAxes(std::string& out, const ProfilePanel& panel, int top) {
  const int width = kCellWidth * static_cast<int>(panel.shares.size());
  const int height = kCellHeight * static_cast<int>(panel.quotas.size());
  for (std::size_t i = 0; i < panel.shares.size(); ++i)
    Add(out, {kLeft + kCellWidth * static_cast<int>(i) + kCellWidth / 2, top + height + 18,
              "text-anchor=\"middle\"", Cat(panel.shares[i], " %")});
  for (std::size_t i = 0; i < panel.quotas.size(); ++i)
    Add(out, {kLeft - 8, top + height - kCellHeight * static_cast<int>(i) - kCellHeight / 2 + 5,
              "text-anchor=\"end\"", Cat(panel.quotas[i], " %")});
  Add(out, {kLeft + width / 2, top + height + 40, "text-anchor=\"middle\" fill=\"#555\"",
            "share of the SMs (percent of the GPU)"});
  absl::StrAppendFormat(&out,
                        "<text transform=\"translate(22 %d) rotate(-90)\" text-anchor=\"middle\" "
                        "fill=\"#555\">quota (percent of the time)</text>\n",
                        top + height / 2);
}

void AddLegend(std::string& out, int x, int top, double most) {
  constexpr int kHeight = 140;
  absl::StrAppendFormat(&out,
                        "<rect x=\"%d\" y=\"%d\" width=\"18\" height=\"%d\" fill=\"url(#scale)\" "
                        "stroke=\"#999\"/>\n",
                        x, top, kHeight);
  Add(out, {x, top - 10, "fill=\"#555\"", "requests/s"});
  Add(out, {x + 26, top + 10, "", Figure(most)});
  Add(out, {x + 26, top + kHeight / 2 + 4, "", Figure(most / 2)});
  Add(out, {x + 26, top + kHeight, "", "0"});
  Add(out, {x, top + kHeight + 24, "font-style=\"italic\" fill=\"#555\"", "~ interpolated"});
}

}  // namespace

std::string HeatMap(const proto::FunctionProfile& profile, const std::string& function) {
  const auto panels = PanelsOf(profile);
  double most = 0;
  std::size_t shares = 1;
  int height = kTop;
  for (const auto& row : profile.rows()) most = std::max(most, row.throughput());
  for (const auto& panel : panels) {
    shares = std::max(shares, panel.shares.size());
    height += kPanelHead + std::max(180, kCellHeight * static_cast<int>(panel.quotas.size())) + kBelow;
  }
  const int width = kLeft + std::max(420, kCellWidth * static_cast<int>(shares)) + kLegend;
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"#fff\"/>\n<defs>\n<pattern id=\"none\" width=\"8\" height=\"8\" "
      "patternUnits=\"userSpaceOnUse\"><rect width=\"8\" height=\"8\" fill=\"#f3f3f3\"/><path d=\"M0 8L8 0\" "
      "stroke=\"#ccc\"/></pattern>\n<linearGradient id=\"scale\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\"><stop "
      "offset=\"0\" stop-color=\"%s\"/><stop offset=\"1\" stop-color=\"%s\"/></linearGradient>\n</defs>\n",
      width, height, width, height, ColourAt(0), ColourAt(1));
  Add(out,
      {kLeft, 30, "font-size=\"18\" font-weight=\"bold\"", Cat("Throughput of one instance of ", function)});
  Add(out, {kLeft, 52, "fill=\"#555\"",
            Cat("on ", profile.gpu_kind(), ", model ", profile.model_digest().substr(0, 12))});
  int top = kTop;
  for (const auto& panel : panels) {
    std::string head = Cat("batch ", panel.batch);
    if (panel.Saturation() > 0) Append(&head, ": no gain above ", panel.Saturation(), " % of the SMs");
    Add(out, {kLeft, top + 14, "font-weight=\"bold\"", head});
    top += kPanelHead;
    for (std::size_t quota = 0; quota < panel.quotas.size(); ++quota)
      for (std::size_t share = 0; share < panel.shares.size(); ++share)
        AddCell(out, kLeft + kCellWidth * static_cast<int>(share),
                top + kCellHeight * static_cast<int>(panel.quotas.size() - 1 - quota),
                panel.At(panel.shares[share], panel.quotas[quota]), most);
    AddAxes(out, panel, top);
    AddLegend(out, kLeft + kCellWidth * static_cast<int>(panel.shares.size()) + 24, top + 8, most);
    top += std::max(180, kCellHeight * static_cast<int>(panel.quotas.size())) + kBelow;
  }
  return out + "</svg>\n";
}

}  // namespace troupe::shell
