// Operators of texts with what no oracle's case has: bytes that are not UTF-8, letters of other alphabets, hostile attributes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;

proto::Step Normalizer(const std::string& change, const std::vector<std::string>& stop = {}) {
  proto::Step step = MakeStep("StringNormalizer");
  SetText(step, "case_change_action", change);
  if (!stop.empty()) SetTexts(step, "stopwords", stop);
  return step;
}

std::vector<std::string> TextsOf(const proto::Step& step, const TestTensor& in, int opset = 20) {
  const auto out = RunOp(step, {in}, opset);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? (*out)[0].AsTexts() : std::vector<std::string>();
}

TEST(Texts, CaseChangesInAllAlphabets) {
  EXPECT_THAT(TextsOf(Normalizer("LOWER"),
                      Texts({5}, {"Stra\u00dfE", "\u00c0\u00c9", "\u0391\u03a3", "\u0416", "X1!"})),
              ElementsAre("stra\u00dfe", "\u00e0\u00e9", "\u03b1\u03c3", "\u0436", "x1!"));
  EXPECT_THAT(TextsOf(Normalizer("UPPER"), Texts({3}, {"stra\u00dfe", "\u0250", "\u0436x"})),
              ElementsAre("STRA\u00dfE", "\u2c6f", "\u0416X"));  // the second grows from 2 bytes to 3
  EXPECT_THAT(TextsOf(Normalizer("UPPER"), Texts({2}, {std::string("a\xff\xc3", 3), std::string("a\0b", 3)})),
              ElementsAre(std::string("A\xff\xc3", 3), std::string("A\0B", 3)));
}

TEST(Texts, StopWordsGoWithoutRegardToCase) {
  EXPECT_THAT(TextsOf(Normalizer("NONE", {"Monday"}), Texts({4}, {"MONDAY", "Tue", "monday", "Monday"})),
              ElementsAre("Tue"));
  const auto none = RunOp(Normalizer("UPPER", {"a"}), {Texts({1, 2}, {"a", "A"})}, 20);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ((*none)[0].shape, (Shape{1, 1}));
  EXPECT_THAT((*none)[0].AsTexts(), ElementsAre(""));
}

TEST(Texts, NormalizersThatCannotBe) {
  ExpectError(Normalizer("TITLE"), {Texts({1}, {"a"})}, "case_change_action 'TITLE'", 20);
  ExpectError(Normalizer("LOWER"), {Texts({2, 1}, {"a", "b"})}, "wants texts of shape [C] or [1,C]", 20);
  ExpectError(Normalizer("LOWER"), {Floats({1}, {1})}, "FP32", 20);
  proto::Step turkish = Normalizer("LOWER");
  SetText(turkish, "locale", "tr_TR");
  ExpectError(turkish, {Texts({1}, {"I"})}, "locale 'tr_TR'", 20);
}

proto::Step Vectorizer(std::int64_t shortest, std::int64_t longest, std::int64_t skips) {
  proto::Step step = MakeStep("TfIdfVectorizer");
  SetText(step, "mode", "TF");
  SetInt(step, "min_gram_length", shortest);
  SetInt(step, "max_gram_length", longest);
  SetInt(step, "max_skip_count", skips);
  return step;
}

void SetPool(proto::Step& step, const std::vector<std::int64_t>& counts,
             const std::vector<std::int64_t>& indexes) {
  SetTexts(step, "pool_strings", {"a", "b", "a", "b"});
  SetInts(step, "ngram_counts", counts);
  SetInts(step, "ngram_indexes", indexes);
}

TEST(Texts, VectorizersThatCannotBe) {
  const auto refused = [](const std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& indexes,
                          const std::string& why, std::int64_t longest = 2, std::int64_t skips = 0) {
    proto::Step step = Vectorizer(1, longest, skips);
    SetPool(step, counts, indexes);
    ExpectError(step, {Texts({2}, {"a", "b"})}, why, 20);
  };
  refused({0, 2}, {0, 1}, "'ngram_indexes' has 2 values, expected 3");
  refused({0, 3}, {0, 1, 2}, "has 1 parts for sequences of 2");
  refused({0, 9}, {0, 1, 2}, "do not ascend within the pool");
  refused({1, 2}, {0, 1, 2}, "begin with 0");
  refused({0, 2}, {0, -1, 2}, "has the index -1");
  refused({0, 2}, {0, std::int64_t{1} << 40, 2}, "has the index 1099511627776");
  refused({0, 2}, {0, 1, 2}, "2 ngram_counts", 3);
  refused({0, 2}, {0, 1, 2}, "skips", 2, std::int64_t{1} << 40);
  proto::Step numbers = Vectorizer(1, 2, 0);
  SetPool(numbers, {0, 2}, {0, 1, 2});
  ExpectError(numbers, {Longs({2}, {1, 2})}, "an input of INT64, and a pool of texts", 20);
  const auto out = RunOp(numbers, {Texts({2, 3}, {"a", "b", "a", "x", "a", "b"})}, 20);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT((*out)[0].As<float>(), ElementsAre(2, 1, 1, 1, 1, 1));
}

TEST(Texts, PartsOfATextAreBounded) {
  const proto::Step split = MakeStep("StringSplit", 2);
  ExpectError(split, {Texts({1}, {std::string(std::size_t{5} << 20, ' ')})}, "set maxsplit", 20);
  const auto out = RunOp(split, {Texts({2}, {"a\tb  c ", ""})}, 20);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (Shape{2, 3}));
  EXPECT_THAT((*out)[0].AsTexts(), ElementsAre("a", "b", "c", "", "", ""));
  EXPECT_THAT((*out)[1].As<std::int64_t>(), ElementsAre(3, 0));
}

}  // namespace
}  // namespace troupe::gpu
