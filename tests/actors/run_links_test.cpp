// Who waits for the end of a run, where the waiters' processes number their actors alike.
#include <gtest/gtest.h>
#include <caf/actor_proxy.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include "actors/manager/run_links.hpp"

namespace troupe::actors {
namespace {

// An actor of another process.
class Foreign final : public caf::actor_proxy {
 public:
  explicit Foreign(caf::actor_config& config) : caf::actor_proxy(config) {}
  void enqueue(caf::mailbox_element_ptr, caf::execution_unit*) override {}
  void kill_proxy(caf::execution_unit* unit, caf::error reason) override { cleanup(std::move(reason), unit); }
};

class RunLinksTest : public ::testing::Test {
 protected:
  // The seventh actor of that process.
  caf::strong_actor_ptr SeventhOf(std::uint32_t process) {
    caf::actor_config config;
    const auto node = caf::make_node_id(process, "0123456789ABCDEF0123456789ABCDEF01234567");
    return caf::make_actor<Foreign, caf::strong_actor_ptr>(7, *node, &system_, config);
  }
  static caf::actor_addr Address(const caf::strong_actor_ptr& actor) {
    return caf::actor_cast<caf::actor_addr>(actor);
  }

  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  RunLinks links_{2};
  const caf::strong_actor_ptr one_ = SeventhOf(1001), two_ = SeventhOf(1002), stranger_ = SeventhOf(1003);
};

TEST_F(RunLinksTest, WaitersOfTwoGatewaysWithTheSameNumberAreBothAnswered) {
  ASSERT_TRUE(links_.Await("run", Address(one_), {}).ok());
  ASSERT_TRUE(links_.Await("run", Address(two_), {}).ok());
  ASSERT_TRUE(links_.Await("run", Address(one_), {}).ok()) << "who asks again waits once";
  EXPECT_TRUE(absl::IsResourceExhausted(links_.Await("run", Address(stranger_), {})));
  EXPECT_EQ(links_.End("run").size(), 2u);
  EXPECT_TRUE(links_.End("run").empty());
}

TEST_F(RunLinksTest, OnlyTheOneThatIsGoneWaitsNoMore) {
  ASSERT_TRUE(links_.Await("run", Address(one_), {}).ok());
  ASSERT_TRUE(links_.Await("run", Address(two_), {}).ok());
  EXPECT_TRUE(links_.Remove(Address(stranger_)).empty());
  links_.Remove(Address(one_));
  EXPECT_EQ(links_.End("run").size(), 1u);
}

}  // namespace
}  // namespace troupe::actors
