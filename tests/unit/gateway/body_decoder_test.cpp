// Compressed bodies, piece by piece.
#include "gateway/body_decoder.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/gateway/deflated.hpp"

namespace troupe::gateway {
namespace {

// Feeds `body` in pieces of `step` bytes; returns what came out, or the first error, also one at the end.
absl::StatusOr<std::string> DecodeAll(BodyCoding coding, const std::string& body, std::size_t step) {
  BodyDecoder decoder(coding);
  std::string all;
  std::vector<std::byte> piece(1000);
  for (std::size_t at = 0; at < body.size(); at += step) {
    const std::string fed = body.substr(at, step);
    decoder.Feed(fed);
    while (true) {
      const auto count = decoder.Decode(piece);
      if (!count.ok()) return count.status();
      if (*count == 0) break;
      all.append(reinterpret_cast<const char*>(piece.data()), *count);
    }
  }
  if (absl::Status status = decoder.CheckEnd(); !status.ok()) return status;
  return all;
}

TEST(BodyDecoder, Headers) {
  EXPECT_EQ(ParseBodyCoding(""), BodyCoding::kIdentity);
  EXPECT_EQ(ParseBodyCoding("Identity"), BodyCoding::kIdentity);
  EXPECT_EQ(ParseBodyCoding("GZip"), BodyCoding::kGzip);
  EXPECT_EQ(ParseBodyCoding("x-gzip"), BodyCoding::kGzip);
  EXPECT_EQ(ParseBodyCoding("deflate"), BodyCoding::kDeflate);
  for (const auto text : {"br", "gzip, gzip", "gzip,identity", "zstd", "gzi", "gzipp"})
    EXPECT_EQ(ParseBodyCoding(text), std::nullopt) << text;
}

TEST(BodyDecoder, AnyPiecesGiveTheSameBytes) {
  std::string plain;
  for (int i = 0; i < 20'000; ++i) plain += std::to_string(i * 7919 % 10'007);
  for (const auto coding : {BodyCoding::kGzip, BodyCoding::kDeflate})
    for (const std::size_t step :
         {std::size_t{1}, std::size_t{17}, std::size_t{4096}, std::size_t{1} << 20}) {
      const auto decoded = DecodeAll(coding, Deflated(plain, coding), step);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_EQ(*decoded, plain);
    }
  EXPECT_EQ(*DecodeAll(BodyCoding::kGzip, Deflated("", BodyCoding::kGzip), 1), "");
}

TEST(BodyDecoder, GzipHasSeveralMembers) {
  const auto two = Deflated("one,", BodyCoding::kGzip) + Deflated("two", BodyCoding::kGzip);
  EXPECT_EQ(*DecodeAll(BodyCoding::kGzip, two, 3), "one,two");
  EXPECT_EQ(*DecodeAll(BodyCoding::kGzip, two, 1000), "one,two");
}

TEST(BodyDecoder, WhatIsBrokenIsRefused) {
  for (const auto coding : {BodyCoding::kGzip, BodyCoding::kDeflate}) {
    const auto good = Deflated("some text that is long enough", coding);
    auto damaged = good;
    damaged[good.size() - 2] ^= 1;  // changes a byte of the checksum
    for (const auto& body : {good.substr(0, good.size() - 1), good + "x", good + good.substr(0, 4), damaged,
                             std::string("not compressed"), std::string(1, '\0')})
      for (const std::size_t step : {std::size_t{1}, std::size_t{1000}})
        EXPECT_TRUE(absl::IsInvalidArgument(DecodeAll(coding, body, step).status())) << body;
  }
  EXPECT_FALSE(DecodeAll(BodyCoding::kDeflate, Deflated("x", BodyCoding::kGzip), 9).ok());
  EXPECT_FALSE(DecodeAll(BodyCoding::kGzip, Deflated("x", BodyCoding::kDeflate), 9).ok());
}

TEST(BodyDecoder, ABombIsGivenUpEarly) {
  const auto small = Deflated(std::string(BodyDecoder::kFree, '\0'), BodyCoding::kGzip);
  EXPECT_TRUE(DecodeAll(BodyCoding::kGzip, small, 100).ok()) << "zeros of a moderate length are not a bomb";
  const auto bomb = Deflated(std::string(64 << 20, '\0'), BodyCoding::kGzip);
  BodyDecoder decoder(BodyCoding::kGzip);
  decoder.Feed(bomb);
  std::vector<std::byte> piece(64 << 10);
  std::uint64_t out = 0;
  absl::StatusOr<std::size_t> count = 1;
  while (count.ok() && *count > 0) {
    count = decoder.Decode(piece);
    if (count.ok()) out += *count;
  }
  EXPECT_TRUE(absl::IsOutOfRange(count.status()));
  EXPECT_LE(out, std::max(BodyDecoder::kFree, BodyDecoder::kMostRatio * (bomb.size() + 1)));
}

}  // namespace
}  // namespace troupe::gateway
