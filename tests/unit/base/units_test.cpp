#include "base/units.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(Units, ParsesSizesWithBinaryAndDecimalSuffixes) {
  Bytes b;
  ASSERT_TRUE(ParseBytes("1.5GiB", b));
  EXPECT_EQ(b, MiB(1536));
  ASSERT_TRUE(ParseBytes("2 MB", b));
  EXPECT_EQ(b, Bytes(2'000'000));
  ASSERT_TRUE(ParseBytes("512", b));
  EXPECT_EQ(b, Bytes(512));
}

TEST(Units, RefusesWhatIsNoSize) {
  Bytes b;
  for (const char* text : {"", "MiB", "-1", "1 QiB", "nan", "inf", "1e300", "12 MiB extra"})
    EXPECT_FALSE(ParseBytes(text, b)) << text;
}

TEST(Units, ParsesDurations) {
  Duration d;
  ASSERT_TRUE(ParseDuration("1.5s", d));
  EXPECT_EQ(d, std::chrono::milliseconds(1500));
  ASSERT_TRUE(ParseDuration("250us", d));
  EXPECT_EQ(d, std::chrono::microseconds(250));
  EXPECT_FALSE(ParseDuration("50", d)) << "a bare number has no unit";
  EXPECT_FALSE(ParseDuration("-5ms", d));
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(FormatBytes(MiB(1536)), "1.5 GiB");
  EXPECT_EQ(FormatBytes(Bytes(320)), "320 B");
  EXPECT_EQ(FormatDuration(std::chrono::microseconds(12345)), "12.3 ms");
}

TEST(Units, SecondsSaturateInsteadOfOverflowing) {
  EXPECT_EQ(FromSeconds(1e30), Duration::max());
  EXPECT_EQ(FromSeconds(0.25), std::chrono::milliseconds(250));
}

TEST(Units, TransferTimeOfUnlimitedLinkIsZero) {
  EXPECT_EQ(TransferTime(GiB(1), BytesPerSecond{0}), Duration::zero());
  EXPECT_EQ(TransferTime(Bytes(6'000'000), BytesPerSecond{6e9}), std::chrono::milliseconds(1));
}

TEST(UnitsDeathTest, BytesNeverBecomeNegative) {
  EXPECT_DEATH(static_cast<void>(Bytes(1) - Bytes(2)), "negative");
}

}  // namespace
}  // namespace troupe
