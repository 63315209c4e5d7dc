#include "base/quantity.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

constexpr Quantity kPercentage{"%", 100, "all"};
constexpr Quantity kMemory{"B", INT64_MAX, "none"};
constexpr Quantity kCount{"", 64, "auto"};
constexpr Quantity kLeft{"%", 100, "all", "auto"};

TEST(QuantityText, IsANumberInItsRangeOrTheWordForNone) {
  struct Case {
    std::string_view text;
    Quantity quantity;
    std::optional<std::uint64_t> value;
  };
  const Case cases[] = {
      {"1", kPercentage, 1},
      {"24%", kPercentage, 24},
      {"100 %", kPercentage, 100},
      {"all", kPercentage, 0},
      {"0", kPercentage, {}},
      {"0%", kPercentage, {}},
      {"101", kPercentage, {}},
      {"12.5", kPercentage, {}},
      {"-1", kPercentage, {}},
      {"", kPercentage, {}},
      {"%", kPercentage, {}},
      {"24%%", kPercentage, {}},
      {"none", kPercentage, {}},
      {"18446744073709551617", kPercentage, {}},
      {"2GiB", kMemory, 2ULL << 30},
      {"1.5 GB", kMemory, 1'500'000'000},
      {"4096", kMemory, 4096},
      {"none", kMemory, 0},
      {"0MiB", kMemory, {}},
      {"2 Gi", kMemory, {}},
      {"24%", kMemory, {}},
      {"8", kCount, 8},
      {"64", kCount, 64},
      {"65", kCount, {}},
      {"8%", kCount, {}},
      {"auto", kCount, 0},
      {"auto", kPercentage, {}},
      {"", kLeft, {}},
      {"all", kLeft, 0},
      {"auto", kLeft, kAutomatic},
  };
  for (const auto& one : cases)
    EXPECT_EQ(ParseQuantity(one.text, one.quantity), one.value) << "'" << one.text << "'";
}

TEST(QuantityText, IsReadBackAsTheNumberThatWasWritten) {
  EXPECT_EQ(FormatQuantity(24, kPercentage), "24%");
  EXPECT_EQ(FormatQuantity(0, kPercentage), "all");
  EXPECT_EQ(FormatQuantity(8, kCount), "8");
  EXPECT_EQ(FormatQuantity(kAutomatic, kLeft), "auto");
  EXPECT_EQ(FormatQuantity(2ULL << 30, kMemory), "2GiB");
  EXPECT_EQ(FormatQuantity(2'000'000'000, kMemory), "2GB") << "and not 1953125KiB";
  EXPECT_EQ(FormatQuantity(1'500'000'000, kMemory), "1500MB");
  EXPECT_EQ(FormatQuantity((3ULL << 20) + 1, kMemory), "3145729B");
  for (const std::uint64_t bytes : {1ULL, 1000ULL, 1024ULL, 102'236'160ULL, 5ULL << 40, (1ULL << 53) - 1})
    EXPECT_EQ(ParseQuantity(FormatQuantity(bytes, kMemory), kMemory), bytes);
}

TEST(QuantityText, SaysWhatIsExpected) {
  EXPECT_EQ(ExpectedOf(kPercentage), "a whole number of percent from 1 to 100, or 'all'");
  EXPECT_EQ(ExpectedOf(kLeft), "a whole number of percent from 1 to 100, or 'all', or 'auto'");
  EXPECT_EQ(ExpectedOf(kMemory), "a size like 2GiB, or 'none'");
  EXPECT_EQ(ExpectedOf(kCount), "a whole number from 1 to 64, or 'auto'");
}

}  // namespace
}  // namespace troupe
