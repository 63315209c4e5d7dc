#include "base/quantity.hpp"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/units.hpp"

namespace troupe {

namespace {

constexpr std::string_view kPercent = "%";
constexpr std::string_view kBytes = "B";

std::optional<std::uint64_t> ParseWhole(std::string_view text) {
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> ParseSize(std::string_view text) {
  Bytes size;
  if (!ParseBytes(std::string(text), size)) return std::nullopt;
  return size.count();
}

std::string_view WithoutPercentSign(std::string_view text) {
  if (!text.ends_with('%')) return text;
  text.remove_suffix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// In the unit in which it is the smallest whole number.
std::string ExactSize(std::uint64_t bytes) {
  constexpr std::pair<std::uint64_t, const char*> kUnits[] = {
      {1ULL << 40, "TiB"}, {1'000'000'000'000, "TB"}, {1ULL << 30, "GiB"}, {1'000'000'000, "GB"},
      {1ULL << 20, "MiB"}, {1'000'000, "MB"},         {1ULL << 10, "KiB"}, {1'000, "KB"},
      {1, kBytes.data()},
  };
  for (const auto& [size, name] : kUnits)
    if (bytes % size == 0) return absl::StrCat(bytes / size, name);
  return {};
}

}  // namespace

std::optional<std::uint64_t> ParseQuantity(std::string_view text, const Quantity& quantity) {
  if (text == quantity.none) return 0;
  if (!quantity.automatic.empty() && text == quantity.automatic) return kAutomatic;
  const auto value = quantity.unit == kBytes     ? ParseSize(text)
                     : quantity.unit == kPercent ? ParseWhole(WithoutPercentSign(text))
                                                 : ParseWhole(text);
  return value && *value >= 1 && *value <= quantity.most ? value : std::nullopt;
}

std::string FormatQuantity(std::uint64_t value, const Quantity& quantity) {
  if (value == 0) return std::string(quantity.none);
  if (value == kAutomatic) return std::string(quantity.automatic);
  if (quantity.unit == kBytes) return ExactSize(value);
  return absl::StrCat(value, std::string(quantity.unit));
}

std::string ExpectedOf(const Quantity& quantity) {
  const auto number = quantity.unit == kBytes ? std::string("a size like 2GiB")
                      : quantity.unit == kPercent
                          ? absl::StrCat("a whole number of percent from 1 to ", quantity.most)
                          : absl::StrCat("a whole number from 1 to ", quantity.most);
  const auto none = absl::StrCat("'", std::string(quantity.none), "'");
  if (quantity.automatic.empty()) return absl::StrCat(number, ", or ", none);
  return absl::StrCat(number, ", or ", none, ", or '", std::string(quantity.automatic), "'");
}

}  // namespace troupe
