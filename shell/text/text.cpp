#include "shell/text/text.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/check.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

std::string_view Code(Colour colour) {
  switch (colour) {
    case Colour::kBold:
      return "1";
    case Colour::kDim:
      return "2";
    case Colour::kGreen:
      return "32";
    case Colour::kYellow:
      return "33";
    case Colour::kRed:
      return "31";
    case Colour::kCyan:
      return "36";
    case Colour::kPlain:
      break;
  }
  return "0";
}

}  // namespace

std::string Style::Paint(std::string_view text, Colour colour) const {
  if (!colours_ || colour == Colour::kPlain || text.empty()) return std::string(text);
  return Cat("\x1b[", Code(colour), "m", text, "\x1b[0m");
}

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // C1 control characters are two bytes in UTF-8: C2 80 to C2 9F.
    const bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c == '\n' || c == '\t') {
      out += ' ';
    } else if (c < 0x20 || c == 0x7F || c1) {
      out += '?';
      if (c1) ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string PrintableLines(std::string_view text) {
  std::vector<std::string> lines;
  for (const auto line : absl::StrSplit(ForAbsl(text), '\n')) lines.push_back(Printable(FromAbsl(line)));
  return absl::StrJoin(lines, "\n  ");
}

std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

std::string Shorten(std::string_view text, std::size_t columns) {
  if (Width(text) <= columns) return std::string(text);
  const std::size_t keep = columns > 3 ? columns - 3 : 0;
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end) {
    if (!IsContinuation(text[end]) && seen++ == keep) break;
  }
  return Cat(text.substr(0, end), std::string_view("...").substr(0, columns));
}

std::string Count(std::uint64_t n) {
  if (n < 10000) return Cat(n);
  const double value = static_cast<double>(n);
  if (value < 1e6) return absl::StrFormat("%.3gK", value / 1e3);
  if (value < 1e9) return absl::StrFormat("%.3gM", value / 1e6);
  return absl::StrFormat("%.3gG", value / 1e9);
}

std::string Percent(double share) {
  if (!(share >= 0)) return "-";
  return absl::StrFormat("%.0f %%", std::min(share, 9.99) * 100);
}

std::string Bar(double share, std::size_t cells) {
  const double cut = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  const auto full = static_cast<std::size_t>(std::lround(cut * static_cast<double>(cells)));
  return Cat("[", std::string(full, '#'), std::string(cells - full, '-'), "]");
}

std::string FormatUnixTime(std::int64_t unix_ns) {
  if (unix_ns <= 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns), absl::LocalTimeZone());
}

Table::Table(std::vector<std::string> headers) : headers_(std::move(headers)), right_(headers_.size()) {
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    if (headers_[i].empty() || headers_[i][0] != '>') continue;
    right_[i] = true;
    headers_[i].erase(0, 1);
  }
}

void Table::Add(std::vector<Cell> row) {
  TROUPE_CHECK(row.size() == headers_.size(), "a row has a cell for each header");
  for (auto& cell : row) cell.text = Printable(cell.text);
  rows_.push_back(std::move(row));
}

std::string Table::Render(const Style& style) const {
  std::vector<std::size_t> widths;
  for (const auto& header : headers_) widths.push_back(Width(header));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i].text));

  std::string out;
  const auto line = [&](const auto& text_of, const auto& colour_of) {
    for (std::size_t i = 0; i < headers_.size(); ++i) {
      const std::string& text = text_of(i);
      const std::string space(widths[i] - Width(text), ' ');
      if (i > 0) out += "  ";
      if (right_[i]) out += space;
      out += style.Paint(text, colour_of(i));
      if (!right_[i] && i + 1 < headers_.size()) out += space;
    }
    out += '\n';
  };
  line([&](std::size_t i) -> const std::string& { return headers_[i]; },
       [](std::size_t) { return Colour::kDim; });
  for (const auto& row : rows_) {
    line([&](std::size_t i) -> const std::string& { return row[i].text; },
         [&](std::size_t i) { return row[i].colour; });
  }
  return out;
}

}  // namespace troupe::shell
