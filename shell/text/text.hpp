// TEXT FOR PEOPLE: colours, tables, and words of the cluster made safe for a terminal. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace troupe::shell {

enum class Colour { kPlain, kBold, kDim, kGreen, kYellow, kRed, kCyan };

// Paints only where colours are wanted.
class Style {
 public:
  explicit Style(bool colours = false) : colours_(colours) {}
  [[nodiscard]] std::string Paint(std::string_view text, Colour colour) const;

 private:
  bool colours_;
};

// One line without control characters: what others wrote (names, messages) must not drive the terminal.
[[nodiscard]] std::string Printable(std::string_view text);
// Each line of it printable, the later ones indented: for errors that list several mistakes.
[[nodiscard]] std::string PrintableLines(std::string_view text);
// Columns that a UTF-8 text takes, one per code point.
[[nodiscard]] std::size_t Width(std::string_view text);
// At most `columns` wide; what was cut is shown by "...".
[[nodiscard]] std::string Shorten(std::string_view text, std::size_t columns);
// "12.3K", "4.56M": counts for narrow columns; below 10,000 in full.
[[nodiscard]] std::string Count(std::uint64_t n);
// "37 %"; "-" for what is not known (negative).
[[nodiscard]] std::string Percent(double share);
// "[######----]", `cells` wide inside the brackets; `share` is cut to [0, 1].
[[nodiscard]] std::string Bar(double share, std::size_t cells);
// "2026-11-21 07:40:12" in local time; "-" for 0.
[[nodiscard]] std::string FormatUnixTime(std::int64_t unix_ns);

struct Cell {
  std::string text;
  Colour colour = Colour::kPlain;
  // NOLINTNEXTLINE(google-explicit-constructor): rows are lists of texts
  Cell(std::string t, Colour c = Colour::kPlain) : text(std::move(t)), colour(c) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Cell(const char* t, Colour c = Colour::kPlain) : text(t), colour(c) {}
};

// Aligned columns, two spaces apart. A header that begins with '>' makes its column flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);
  // As many cells as there are headers; texts are made printable.
  void Add(std::vector<Cell> row);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] std::string Render(const Style& style) const;

 private:
  std::vector<std::string> headers_;
  std::vector<bool> right_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace troupe::shell
