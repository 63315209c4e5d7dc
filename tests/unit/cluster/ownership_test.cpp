// When the cluster plans which functions own which parts of GPUs, and what it stores of a plan.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::ownership_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class Owning : public ClusterTest {
 protected:
  // Function "f" has a copy on node "n1", and requests this part of a GPU's time.
  Owning() {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
    Pulse();
    Deploy("f", 2);
    Stored();
    Adopted();
    Pulse();
    Request(50);
    EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
    EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: instances-placed"));
  }
  void Request(std::uint32_t quota) {
    AdminAsked asked{.ask = 40};
    auto& update = *asked.request.mutable_update_function();
    update.mutable_key()->set_name("f");
    update.mutable_sharing()->set_quota_request(quota);
    update.add_settings("quota_request");
    On(std::move(asked));
    Stored();
  }
};

TEST_F(Owning, APlanThatChangesNothingIsNotStored) {
  EXPECT_THAT(Pulse(), IsEmpty());
  JoinNode("n2", 3);
  Stored();
  EXPECT_THAT(Pulse(), Not(Contains(StartsWith("store"))));
  EXPECT_THAT(Stored(), ElementsAre("nothing is on its way to the store"));
  Request(60);
  EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
}

TEST_F(Owning, APlanThatCouldNotBeStoredIsMadeAgain) {
  Request(60);
  EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
  EXPECT_THAT(Stored(absl::ResourceExhaustedError("the disk is full")), IsEmpty());
  EXPECT_THAT(Pulse(), Not(Contains(StartsWith("store")))) << "the store is left alone for a second";
  EXPECT_THAT(Pulse(std::chrono::seconds(1)), Contains("store f/1 revision"));
}

}  // namespace
}  // namespace troupe::cluster::ownership_test
