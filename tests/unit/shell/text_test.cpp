#include "shell/text/text.hpp"

#include <gtest/gtest.h>

namespace troupe::shell {
namespace {

TEST(Text, WhatOthersWroteCannotDriveTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\nc\x7f"), "a?[2Jb c?");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "1m"),
            "?1m");
  EXPECT_EQ(Printable("für"), "für");
}

TEST(Text, WidthCountsCharactersNotBytes) {
  EXPECT_EQ(Width("für"), 3U);
  EXPECT_EQ(Shorten("abcdefgh", 6), "abc...");
  EXPECT_EQ(Shorten("üüüüüüü", 5), "üü...");
  EXPECT_EQ(Shorten("abc", 3), "abc");
  EXPECT_EQ(Shorten("abc", 1), ".");
}

TEST(Text, NumbersForPeople) {
  EXPECT_EQ(Count(9999), "9999");
  EXPECT_EQ(Count(12345), "12.3K");
  EXPECT_EQ(Percent(0.254), "25 %");
  EXPECT_EQ(Percent(-1), "-");
  EXPECT_EQ(Bar(0.5, 4), "[##--]");
  EXPECT_EQ(Bar(7, 4), "[####]");
  EXPECT_EQ(FormatUnixTime(0), "-");
}

TEST(Text, TablesAlignAndColoursTakeNoColumns) {
  Table table({"NAME", ">COUNT", "STATE"});
  table.Add({"ü", "7", Cell("ready", Colour::kGreen)});
  table.Add({"longer\n", "1234", "x"});
  EXPECT_EQ(table.Render(Style(false)),
            "NAME     COUNT  STATE\n"
            "ü            7  ready\n"
            "longer    1234  x\n");
  EXPECT_NE(table.Render(Style(true)).find("\x1b[32mready\x1b[0m"), std::string::npos);
}

}  // namespace
}  // namespace troupe::shell
