#include "gpu/worker/ownership.hpp"

#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using std::chrono::seconds;

constexpr Time kWaiting{seconds(100)};

proto::AdoptHello HelloOf(std::uint64_t epoch, const std::string& key = "") {
  proto::AdoptHello hello;
  hello.set_daemon_epoch(epoch);
  hello.set_isolation_key(key);
  return hello;
}

TEST(Ownership, TheFirstDaemonHasTenSecondsWhateverTheLease) {
  Ownership owner(seconds(1));
  owner.Wait(kWaiting);
  EXPECT_EQ(owner.lease(), seconds(10));
  EXPECT_FALSE(owner.LeaseIsOver(kWaiting + seconds(9)));
  EXPECT_TRUE(owner.LeaseIsOver(kWaiting + seconds(10)));
  EXPECT_EQ(owner.Begin(HelloOf(1)), 1u);
  owner.Adopted(HelloOf(1));
  owner.Lost(kWaiting + seconds(20));
  EXPECT_EQ(owner.lease(), seconds(1));
  EXPECT_FALSE(owner.LeaseIsOver(kWaiting + seconds(20)));
  EXPECT_TRUE(owner.LeaseIsOver(kWaiting + seconds(21)));
  EXPECT_EQ(Ownership(seconds(60)).lease(), seconds(60));
}

TEST(Ownership, ADaemonIsAdmittedByEpochAndByKey) {
  Ownership owner(seconds(1));
  EXPECT_TRUE(owner.Admit(HelloOf(2), false).ok());
  owner.Begin(HelloOf(2));
  owner.Adopted(HelloOf(2));
  EXPECT_FALSE(owner.Admit(HelloOf(1), false).ok()) << "an older daemon";
  EXPECT_FALSE(owner.Admit(HelloOf(2), false).ok()) << "the same one, twice";
  EXPECT_TRUE(owner.Admit(HelloOf(3), true).ok());
  // It comes to say whom the worker serves, while no model is there.
  EXPECT_TRUE(owner.Assigns(HelloOf(2, "alice")));
  EXPECT_TRUE(owner.Admit(HelloOf(2, "alice"), false).ok());
  EXPECT_FALSE(owner.Admit(HelloOf(2, "alice"), true).ok());
  owner.Begin(HelloOf(2, "alice"));
  EXPECT_EQ(owner.key(), "alice");
  EXPECT_FALSE(owner.Assigns(HelloOf(2, "alice")));
  EXPECT_FALSE(owner.Admit(HelloOf(3, "bob"), false).ok());
}

}  // namespace
}  // namespace troupe::gpu
