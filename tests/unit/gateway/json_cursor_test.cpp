#include "gateway/json_cursor.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/random.hpp"
#include "gateway/json_text.hpp"

namespace troupe::gateway {
namespace {

bool Accepts(std::string_view text) {
  JsonCursor cursor(text);
  return cursor.Skip() && cursor.Finish();
}

bool BoostAccepts(std::string_view text) {
  boost::system::error_code error;
  boost::json::parse_options options;
  options.max_depth = 63;
  boost::json::parse({text.data(), text.size()}, error, {}, options);
  return !error;
}

TEST(JsonCursor, TakesWhatRfc8259Takes) {
  for (const std::string_view text :
       {"{}", "[]", " [ ] ", "0", "-0", "-1.5e-3", "1E+2", "true", "false", "null", R"("")",
        R"("a\"b\\\/\b\f\n\r\t")", R"("\u00e9\uD83D\ude00")", "\"\xc3\xa9\xf0\x9f\x98\x80\"",
        R"({"a":[1,{"b":null}],"c":"d"})", "\t[1 , 2]\n"}) {
    EXPECT_TRUE(Accepts(text)) << text;
    EXPECT_TRUE(BoostAccepts(text)) << text;
  }
}

TEST(JsonCursor, RefusesWhatRfc8259Refuses) {
  for (const std::string_view text : {"",
                                      " ",
                                      "{",
                                      "[",
                                      "]",
                                      "[1,]",
                                      "[,1]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "1e",
                                      "1e+",
                                      "-",
                                      "tru",
                                      "nul",
                                      "'a'",
                                      "\"a",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\\udc00\"",
                                      "\"\n\"",
                                      "\"\xff\"",
                                      "\"\xc0\x80\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xf5\x80\x80\x80\"",
                                      "\"\xe2\x82\"",
                                      "1 2",
                                      "[1 2]",
                                      "{\"a\" 1}",
                                      "NaN",
                                      "Infinity",
                                      "[1]]"}) {
    EXPECT_FALSE(Accepts(text)) << text;
    EXPECT_FALSE(BoostAccepts(text)) << text;
  }
}

// Two parsers that know nothing of each other agree on thousands of broken texts.
TEST(JsonCursor, AgreesWithAnotherParserOnMutations) {
  const std::string seed =
      R"({"id":"4\u00e92","inputs":[{"name":"x","shape":[2,-1],"data":[[1.5e3,null],[true,"\n"]]}]})";
  Random random(7);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = seed;
    for (std::uint64_t n = 1 + random.Below(3); n > 0; --n) {
      const auto at = static_cast<std::size_t>(random.Below(text.size()));
      switch (random.Below(3)) {
        case 0:
          text[at] = "{}[]\",:0-1.e\\u tnf\xc3\xa9"[random.Below(20)];
          break;
        case 1:
          text.erase(at, 1 + random.Below(3));
          break;
        default:
          text.insert(at, text.substr(static_cast<std::size_t>(random.Below(text.size())), random.Below(6)));
      }
    }
    EXPECT_EQ(Accepts(text), BoostAccepts(text)) << text;
    accepted += Accepts(text) ? 1 : 0;
  }
  EXPECT_GT(accepted, 500);
}

TEST(JsonCursor, StopsAtADepth) {
  EXPECT_TRUE(Accepts(std::string(63, '[') + std::string(63, ']')));
  EXPECT_FALSE(Accepts(std::string(64, '[') + std::string(64, ']')));
  EXPECT_FALSE(Accepts(std::string(100000, '[')));
}

TEST(JsonCursor, UnescapesAndKeepsViews) {
  const std::string text = R"(["plain","A\u00e9\uD83D\uDE00\n"])";
  JsonCursor cursor(text);
  std::string_view value;
  ASSERT_TRUE(cursor.BeginArray() && cursor.NextElement() && cursor.ReadString(value));
  EXPECT_EQ(value.data(), text.data() + 2);
  ASSERT_TRUE(cursor.NextElement() && cursor.ReadString(value));
  EXPECT_EQ(value, "A\xc3\xa9\xf0\x9f\x98\x80\n");
  EXPECT_FALSE(cursor.NextElement());
  EXPECT_TRUE(cursor.Finish());
}

TEST(JsonCursor, TheFirstErrorSticksAndHasAnOffset) {
  JsonCursor cursor(R"({"a": x})");
  std::string_view key;
  ASSERT_TRUE(cursor.BeginObject() && cursor.NextMember(key));
  EXPECT_FALSE(cursor.Skip());
  EXPECT_FALSE(cursor.NextMember(key));
  EXPECT_EQ(cursor.status().message(), "JSON: value expected at byte 6");
}

TEST(JsonText, EscapesAndRefusesWhatIsNoUtf8) {
  std::string out;
  EXPECT_TRUE(AppendJsonString(out, "a\"\\\n\x01\xc3\xa9"));
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001\xc3\xa9\"");
  out.clear();
  EXPECT_FALSE(AppendJsonString(out, "a\xff"));
  EXPECT_TRUE(out.empty());
  AppendJsonText(out,
                 "a\xff"
                 "b");
  EXPECT_EQ(out, "\"a?b\"");
}

}  // namespace
}  // namespace troupe::gateway
