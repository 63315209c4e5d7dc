#include "shell/words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"

namespace troupe::shell {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Split(std::string_view line) {
  auto words = SplitWords(line);
  EXPECT_TRUE(words.ok()) << words.status();
  return words.ok() ? *words : std::vector<std::string>();
}

TEST(Words, AreCutAtSpacesOutsideOfQuotes) {
  EXPECT_THAT(Split("function  list\t--json"), ElementsAre("function", "list", "--json"));
  EXPECT_THAT(Split("a 'b c' \"d e\" f\\ g"), ElementsAre("a", "b c", "d e", "f g"));
  EXPECT_THAT(Split("x='my file'.npy"), ElementsAre("x=my file.npy"));
  EXPECT_THAT(Split("   "), IsEmpty());
  EXPECT_THAT(Split("'' \"\""), ElementsAre("", ""));
}

TEST(Words, QuotesDifferInWhatABackslashDoes) {
  EXPECT_THAT(Split(R"('a\b' "a\b" "a\"b" "a\\b" a\b)"),
              ElementsAre(R"(a\b)", R"(a\b)", "a\"b", R"(a\b)", "ab"));
  EXPECT_THAT(Split(R"("it's" 'say "hi"')"), ElementsAre("it's", "say \"hi\""));
}

TEST(Words, CommentsEndTheLineOnlyAtTheBeginOfAWord) {
  EXPECT_THAT(Split("top # the cluster's"), ElementsAre("top"));
  EXPECT_THAT(Split("a#b"), ElementsAre("a#b"));
}

TEST(Words, WhatIsLeftOpenIsAnError) {
  EXPECT_FALSE(SplitWords("infer 'digits").ok());
  EXPECT_FALSE(SplitWords("infer \"digits").ok());
  EXPECT_FALSE(SplitWords("infer digits\\").ok());
}

TEST(Words, PartialLineKnowsWhereTheLastWordBegins) {
  const auto typing = SplitPartial("function sh");
  EXPECT_THAT(typing.words, ElementsAre("function"));
  EXPECT_EQ(typing.stem, "sh");
  EXPECT_EQ(typing.begin, 9U);
  const auto between = SplitPartial("function ");
  EXPECT_THAT(between.words, ElementsAre("function"));
  EXPECT_EQ(between.stem, "");
  EXPECT_EQ(between.begin, 9U);
  const auto quoted = SplitPartial("deploy 'my fi");
  EXPECT_EQ(quoted.stem, "my fi");
  EXPECT_EQ(quoted.quote, '\'');
  EXPECT_EQ(quoted.begin, 7U);
}

TEST(Words, AQuotedWordIsReadBackAsItWas) {
  Random random(7);
  const std::string_view letters = "ab '\"\\#=$\t-";
  for (int round = 0; round < 2000; ++round) {
    std::string word;
    for (std::uint64_t n = 1 + random.Below(8); n > 0; --n) word += letters[random.Below(letters.size())];
    for (const char quote : {'\0', '\'', '"'})
      EXPECT_THAT(Split(QuoteWord(word, quote)), ElementsAre(word)) << word;
  }
}

}  // namespace
}  // namespace troupe::shell
