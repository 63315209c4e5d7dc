#include "base/policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy_test {
namespace {

using testing::HasSubstr;

TEST(Policy, PresetsNameOnePolicyPerSlot) {
  EXPECT_EQ(FindPreset("troupe")->routing, "locality");
  EXPECT_EQ(FindPreset("load-balance")->ordering, "fifo");
  EXPECT_EQ(FindPreset("load-balance")->eviction, "lru-strict");
  const absl::Status status = FindPreset("fastest").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(
          "troupe, troupe-edf, troupe-late-last, troupe-kind-blind, troupe-own-work, troupe-resident-first, troupe-by-count, troupe-ahead, "
          "troupe-asked, troupe-late, fast, load-balance"));
  EXPECT_EQ(FindPreset("fast")->owning, "always");
  EXPECT_EQ(FindPreset("fast")->scaling, "fast-scaler");
  EXPECT_EQ(FindPreset("troupe-late")->owning, "never");
  EXPECT_EQ(FindPreset("troupe")->owning, "by-cost");
}

}  // namespace
}  // namespace troupe::policy_test
