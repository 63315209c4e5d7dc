// Models in stages in a whole cluster under virtual time: gateways, nodes and the manager are the production ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class StagedModels : public ::testing::Test {
 protected:
  // Each of the GPUs has a GiB.
  StagedModels() : world_(2, 1) {}

  // 2 GiB are three stages of at most three quarters of a GPU.
  absl::Status Deploy() { return world_.Deploy("big", GiB(2)); }
  absl::StatusOr<proto::AdminReply> Remove(const std::string& name) {
    proto::AdminRequest request;
    request.mutable_remove()->mutable_key()->set_name(name);
    return world_.Ask(request);
  }
  std::vector<std::string> Functions() {
    proto::AdminRequest request;
    request.mutable_list_functions();
    const auto reply = world_.Ask(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    std::vector<std::string> names;
    for (const auto& function : reply->functions())
      names.push_back(function.record().key().name() + "/" + function.record().key().version());
    return names;
  }
  // What a gateway answers, or its error.
  std::string Ask(const std::string& question, const std::string& key = {}) {
    proto::InferRequest request;
    request.set_run_key(key);
    request.mutable_function()->set_name("big");
    request.set_timeout_ns(Duration(seconds(10)).count());
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("x");
    input.mutable_spec()->set_type(proto::FP32);
    input.mutable_spec()->add_shape(1);
    input.mutable_spec()->add_shape(4);
    input.mutable_data()->set_inlined(question);
    std::optional<proto::InferReply> reply;
    world_.gateway(0).front->Infer(std::move(request),
                                   [&reply](proto::InferReply answer) { reply = std::move(answer); });
    world_.RunUntil([&reply] { return reply.has_value(); }, seconds(20));
    if (!reply) return "no answer";
    if (reply->code() != 0) return reply->message();
    return reply->outputs(0).spec().name() + "=" + reply->outputs(0).data().inlined();
  }

  World world_;
};

constexpr char kQuestion[] = "sixteen bytes...";

TEST_F(StagedModels, AreCalledAsFunctionsAndRunOnSeveralGpus) {
  ASSERT_TRUE(Deploy().ok());
  EXPECT_THAT(Functions(), ElementsAre("big.1/1", "big.2/1", "big.3/1"));
  EXPECT_EQ(Ask(kQuestion), std::string("out_out_out_x=") + kQuestion);
  std::set<std::string> nodes;
  for (const char* node : {"node-1", "node-2"})
    if (!world_.node(node).workers[0]->run_as.empty()) nodes.insert(node);
  EXPECT_EQ(nodes.size(), 2) << "a GPU has room for one of them";
}

// As a function's request is: nothing of it is written.
TEST_F(StagedModels, ARequestIsInTheRunLogIfItHasAKey) {
  ASSERT_TRUE(Deploy().ok());
  const auto runs = [&] {
    proto::AdminRequest request;
    request.mutable_list_runs();
    return world_.Ask(request)->runs_size();
  };
  EXPECT_EQ(Ask(kQuestion), std::string("out_out_out_x=") + kQuestion);
  EXPECT_EQ(runs(), 0);
  EXPECT_EQ(Ask(kQuestion, "key"), std::string("out_out_out_x=") + kQuestion);
  EXPECT_EQ(runs(), 1);
}

TEST_F(StagedModels, AWorkerThatDiesWithWhatAStageGaveHasItComputedAgain) {
  ASSERT_TRUE(Deploy().ok());
  EXPECT_EQ(Ask(kQuestion), std::string("out_out_out_x=") + kQuestion);
  for (int kill = 0; kill < 10; ++kill) {
    world_.node(kill % 2 == 0 ? "node-1" : "node-2").workers[0]->kill();
    EXPECT_EQ(Ask(kQuestion), std::string("out_out_out_x=") + kQuestion) << kill;
  }
}

TEST_F(StagedModels, AreThereWholeWhenTheManagerComesBack) {
  ASSERT_TRUE(Deploy().ok());
  world_.StopManager();
  EXPECT_EQ(Ask(kQuestion), std::string("out_out_out_x=") + kQuestion) << "the gateway knows them";
  world_.StartManager();
  world_.Run(seconds(3));
  EXPECT_THAT(Functions(), ElementsAre("big.1/1", "big.2/1", "big.3/1"));
  ASSERT_TRUE(Remove("big").ok());
  EXPECT_THAT(Functions(), IsEmpty());
  world_.StopManager();
  world_.StartManager();
  world_.Run(seconds(3));
  EXPECT_THAT(Functions(), IsEmpty());
  EXPECT_TRUE(Deploy().ok());
}

TEST_F(StagedModels, AManagerThatDiesDuringADeploymentHasAllOrNothing) {
  for (std::uint64_t committed = 0; committed < 3; ++committed) {
    SCOPED_TRACE(committed);
    proto::AdminRequest request;
    auto& deploy = *request.mutable_deploy();
    deploy.set_name("big");
    deploy.set_onnx_digest(world_.MakeModel("big", GiB(2)));
    world_.system().spawn([this, request](caf::event_based_actor* self) {
      self->request(world_.manager(), caf::infinite, request).then([](const proto::AdminReply&) {});
    });
    world_.Run(std::chrono::microseconds(100 * committed));
    world_.StopManager();
    world_.StartManager();
    world_.Run(seconds(3));
    const auto there = Functions();
    EXPECT_TRUE(there.empty() || there.size() == 3) << there.size();
    if (there.empty()) continue;
    EXPECT_EQ(Ask(kQuestion), std::string("out_out_out_x=") + kQuestion);
    EXPECT_TRUE(Remove("big").ok());
  }
}

TEST_F(StagedModels, ANodeThatDiesLosesNoStage) {
  ASSERT_TRUE(Deploy().ok());
  EXPECT_EQ(Ask(kQuestion), std::string("out_out_out_x=") + kQuestion);
  world_.KillNode("node-1");
  world_.Run(seconds(5));
  EXPECT_EQ(Ask(kQuestion), std::string("out_out_out_x=") + kQuestion) << "one GPU has them in turns";
}

}  // namespace
}  // namespace troupe::actors
