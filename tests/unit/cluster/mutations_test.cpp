// Changes of the registries: one at a time, each judged by the state that the changes before it left.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::mutations_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Mutations : public ClusterTest {
 protected:
  Mutations() {
    Begin(Records());
    Stored();
  }
  Lines RemoveFlow(Ask ask) {
    AdminAsked asked{.ask = ask};
    asked.request.mutable_remove_workflow()->set_name("flow");
    return On(std::move(asked));
  }
  Lines CreateKey(const std::string& name, Ask ask, absl::Status valid = {}) {
    KeyMade made{.ask = ask, .text = "secret", .valid = std::move(valid)};
    made.key.set_name(name);
    return On(std::move(made));
  }
};

TEST_F(Mutations, TheSecondIsJudgedAfterTheFirstIsApplied) {
  EXPECT_THAT(RemoveFlow(1), ElementsAre("store -flow/1 revision"));
  EXPECT_THAT(RemoveFlow(2), IsEmpty()) << "the removal waits";
  EXPECT_THAT(CreateKey("k", 3), IsEmpty());
  EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: workflow-removed", "answer 1 OK",
                                    "answer 2 NOT_FOUND", "store api-key/k revision"));
  EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: key-created", "answer 3 OK"));
}

TEST_F(Mutations, WhatIsNotStoredIsNotApplied) {
  EXPECT_THAT(RemoveFlow(1), ElementsAre("store -flow/1 revision"));
  EXPECT_THAT(Stored(absl::ResourceExhaustedError("the disk is full")),
              ElementsAre("answer 1 RESOURCE_EXHAUSTED"));
  EXPECT_THAT(RemoveFlow(2), ElementsAre("store -flow/1 revision")) << "the workflow is still there";
}

TEST_F(Mutations, WhatIsNotValidIsNotStored) {
  EXPECT_THAT(CreateKey("k", 1, absl::InvalidArgumentError("no scopes")),
              ElementsAre("answer 1 INVALID_ARGUMENT"));
  EXPECT_THAT(CreateKey("k", 2), ElementsAre("store api-key/k revision"));
  EXPECT_THAT(CreateKey("k", 3), IsEmpty());
  EXPECT_THAT(Stored(),
              ElementsAre("tell members", "manager: key-created", "answer 2 OK", "answer 3 ALREADY_EXISTS"));
}

TEST_F(Mutations, AFullQueueRefusesAndLosesNothing) {
  EXPECT_THAT(RemoveFlow(1), ElementsAre("store -flow/1 revision"));
  for (Ask ask = 2; ask <= 1024; ++ask) ASSERT_THAT(RemoveFlow(ask), IsEmpty());
  EXPECT_THAT(RemoveFlow(1025), ElementsAre("answer 1025 RESOURCE_EXHAUSTED"));
  const auto lines = Stored();
  ASSERT_EQ(lines.size(), 2 + 1024u);
  EXPECT_EQ(lines[2], "answer 1 OK");
  EXPECT_EQ(lines.back(), "answer 1024 NOT_FOUND");
}

}  // namespace
}  // namespace troupe::cluster::mutations_test
