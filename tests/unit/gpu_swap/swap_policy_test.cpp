#include "gpu/swap/swap_policy.hpp"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

TEST(SwapPolicy, TheLadderTakesOneStepAtATime) {
  const auto policies = SwapPolicies();
  ASSERT_EQ(policies.size(), 4u);
  for (std::size_t i = 1; i < policies.size(); ++i) {
    const SwapPolicy& below = policies[i - 1].policy;
    const SwapPolicy& above = policies[i].policy;
    const int steps = (below.registered != above.registered) + (below.overlap != above.overlap);
    EXPECT_LE(steps, 1) << policies[i].name;
    EXPECT_TRUE(steps == 1 || below.cut != above.cut) << policies[i].name;
  }
}

TEST(SwapPolicy, NamesAreFoundAndOthersAreRefused) {
  for (const auto& entry : SwapPolicies()) EXPECT_TRUE(FindSwapPolicy(entry.name).ok()) << entry.name;
  for (const auto& entry : LinkSharings()) EXPECT_TRUE(FindLinkSharing(entry.name).ok()) << entry.name;
  EXPECT_EQ(FindSwapPolicy("")->cut, SwapPolicy::Cut::kGroups);
  EXPECT_EQ(*FindLinkSharing(""), LinkSharing::kDeadline);
  const absl::Status unknown = FindSwapPolicy("pinned").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), testing::HasSubstr("pageable, whole, per-tensor, grouped"));
  EXPECT_EQ(FindLinkSharing("fair").status().code(), absl::StatusCode::kNotFound);
}

TEST(Urgency, FollowsArrivalNothingOrDeadline) {
  const Time early(std::chrono::seconds(10));
  const Time late(std::chrono::seconds(11));
  const Time deadline(std::chrono::seconds(5));
  EXPECT_LT(UrgencyOf(LinkSharing::kExclusive, early, {}),
            UrgencyOf(LinkSharing::kExclusive, late, deadline));
  EXPECT_EQ(UrgencyOf(LinkSharing::kShared, early, {}), UrgencyOf(LinkSharing::kShared, late, deadline));
  EXPECT_LT(UrgencyOf(LinkSharing::kDeadline, late, deadline), UrgencyOf(LinkSharing::kDeadline, early, {}));
  EXPECT_LT(UrgencyOf(LinkSharing::kDeadline, early, {}),
            UrgencyOf(LinkSharing::kDeadline, late, early + 3 * kUnhurried))
      << "a load without a deadline does not yield for ever";
  EXPECT_EQ(UrgencyOf(LinkSharing::kDeadline, early, {}),
            UrgencyOf(LinkSharing::kDeadline, early + std::chrono::milliseconds(5), {}))
      << "loads that arrive together share the link";
}

}  // namespace
}  // namespace troupe::gpu
