// QUANTITY: a whole number above 0 as people write it: a percentage, a size of memory or a count; or a word that stands
// for 0, which means that there is none; or a word that leaves the number to the program. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

struct Quantity {
  std::string_view unit;  // "%", "B" for a size of memory, "" for a count
  std::uint64_t most = 0;
  std::string_view none;  // the word that stands for 0
  std::string_view automatic =
      {};  // the word that stands for kAutomatic; "": the number is not left to the program
};
inline constexpr std::uint64_t kAutomatic = UINT64_MAX;
// Of a setting that names its unit, its largest value and its words (proto::SharingField).
template <class Setting>
[[nodiscard]] constexpr Quantity QuantityOf(const Setting& setting) {
  return {setting.unit, setting.most, setting.none, setting.automatic};
}

// "30%", "30 %", "30" or one of the words when the unit is "%"; "2GiB"; "8". Nothing when `text` is none of these.
[[nodiscard]] std::optional<std::uint64_t> ParseQuantity(std::string_view text, const Quantity& quantity);
// "30%", "2GiB", "8", "all": ParseQuantity reads it as `value`.
[[nodiscard]] std::string FormatQuantity(std::uint64_t value, const Quantity& quantity);
// "a whole number of percent from 1 to 100, or 'all'": what ParseQuantity reads.
[[nodiscard]] std::string ExpectedOf(const Quantity& quantity);

}  // namespace troupe
