#include "base/digest.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(Digest, MatchesThePublishedVectors) {  // FIPS 180-4 examples
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Digest, IncrementalEqualsWhole) {
  Sha256 hash;
  hash.Update("a");
  hash.Update("bc");
  EXPECT_EQ(hash.Finish(), Sha256Hex("abc"));
}

TEST(Digest, OnlyACleanDigestMayBecomeAPath) {
  EXPECT_TRUE(IsSha256Hex(Sha256Hex("x")));
  EXPECT_FALSE(IsSha256Hex("../" + Sha256Hex("x").substr(3)));
  EXPECT_FALSE(IsSha256Hex("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"));
  EXPECT_FALSE(IsSha256Hex(""));
}

}  // namespace
}  // namespace troupe
