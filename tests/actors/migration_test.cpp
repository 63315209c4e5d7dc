// The models of a node that dies or drains are soon on other nodes, and new machines come for those that are
// gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "sim/network.hpp"
#include "sim/simulated_provisioner.hpp"
#include "sim/world.hpp"
#include "tests/actors/cluster_events.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// A cluster whose store knows `functions` functions when it starts.
class Migration : public ::testing::Test {
 protected:
  void Open(int nodes, int functions, std::uint32_t replicas,
            const std::function<void(ManagerOptions&)>& adjust = {}) {
    for (int i = 0; i < functions; ++i) records_.push_back(RecordOf(absl::StrCat("f", i), i + 1));
    storage::Batch batch;
    batch.Put(storage::Table::kSettings, "cluster", "test-cluster");
    for (const auto& record : records_)
      batch.Put(storage::Table::kFunctions, absl::StrCat(record.key().name(), "/1"), record);
    ASSERT_TRUE(storage::CommitAndWait(world_.store(), std::move(batch)).ok());
    world_.StartManager(replicas, adjust);
    world_.StartGateway();
    for (int i = 1; i <= nodes; ++i) StartNode(absl::StrCat("node-", i));
    world_.Run(seconds(5));
    ASSERT_EQ(Short(replicas), Names());
  }
  void TearDown() override { world_.ShutDown(); }

  static proto::FunctionRecord RecordOf(const std::string& name, int revision) {
    proto::FunctionRecord record;
    record.mutable_key()->set_name(name);
    record.mutable_key()->set_version("1");
    record.set_model_digest(sim::World::ModelDigest(name));
    record.set_weights_digest(Sha256Hex("weights " + name));
    record.set_onnx_digest(Sha256Hex("onnx " + name));
    record.set_weights_bytes(MiB(1).count());
    record.set_model_bytes(1000);
    record.set_loaded(true);
    record.set_revision(static_cast<std::uint64_t>(revision));
    record.mutable_slo()->set_deadline_ns(100'000'000);
    auto& input = *record.add_inputs();
    input.set_name("x");
    input.set_type(proto::FP32);
    input.add_shape(-1);
    *record.add_outputs() = input;
    record.mutable_outputs(0)->set_name("out_x");
    return record;
  }
  void StartNode(const std::string& name) {
    sim::World::NodePlan plan;
    plan.options.name = name;
    plan.options.copies.region = plan.host_region;
    plan.options.gpus.push_back({"fake:0", plan.worker.memory});
    world_.StartNode(std::move(plan));
    for (const auto& record : records_) world_.node(name).repository.AddModel(record.onnx_digest(), record);
  }
  using Names = std::vector<std::string>;
  // The functions with fewer than `copies` copies on nodes that are alive and do not drain.
  Names Short(std::size_t copies, const std::string& without = {}) {
    proto::AdminRequest list;
    list.mutable_list_functions();
    const auto functions = world_.Ask(list);
    EXPECT_TRUE(functions.ok()) << functions.status();
    Names names;
    for (const auto& function : functions->functions()) {
      const auto& nodes = function.adopted_by();
      const auto there =
          std::count_if(nodes.begin(), nodes.end(), [&](const auto& n) { return n != without; });
      if (static_cast<std::size_t>(there) < copies) names.push_back(function.record().key().name());
    }
    return names;
  }
  std::size_t HeldBy(const std::string& node) {
    proto::AdminRequest list;
    list.mutable_list_functions();
    const auto functions = world_.Ask(list);
    return static_cast<std::size_t>(std::count_if(
        functions->functions().begin(), functions->functions().end(), [&](const auto& function) {
          return std::find(function.adopted_by().begin(), function.adopted_by().end(), node) !=
                 function.adopted_by().end();
        }));
  }
  proto::InferReply Infer(const std::string& function, Duration timeout) {
    proto::InferRequest request;
    request.mutable_function()->set_name(function);
    request.set_timeout_ns(timeout.count());
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("x");
    input.mutable_spec()->set_type(proto::FP32);
    input.mutable_spec()->add_shape(1);
    input.mutable_data()->set_inlined("1234");
    std::optional<proto::InferReply> reply;
    world_.gateway(0).front->Infer(request, [&reply](proto::InferReply got) { reply = std::move(got); });
    world_.RunUntil([&] { return reply.has_value(); }, timeout + seconds(3));
    EXPECT_TRUE(reply.has_value());
    return reply.value_or(proto::InferReply());
  }
  std::vector<std::string> EventsOf(const std::string& kind) { return MessagesOfKind(world_, kind); }

  sim::World world_{sim::NetworkOptions()};
  std::vector<proto::FunctionRecord> records_;
};

TEST_F(Migration, AThousandFunctionsOfADeadNodeAreElsewhereWithinTwoSeconds) {
  Open(4, 1000, 1);
  const auto lost = HeldBy("node-2");
  ASSERT_GT(lost, 150u);
  world_.KillNode("node-2");
  world_.Run(seconds(2));
  EXPECT_EQ(Short(1), Names());
  for (int i = 0; i < 1000; i += 97) EXPECT_EQ(Infer(absl::StrCat("f", i), seconds(2)).code(), 0);
}

TEST_F(Migration, AThousandFunctionsOfANodeThatIsCutOffAreElsewhereTwoSecondsAfterItWasNoticed) {
  Open(3, 1000, 1);
  world_.network()->Partition("node-2", "manager", false);
  world_.Run(seconds(3));
  EXPECT_EQ(Short(1, "node-2"), Names());
}

TEST_F(Migration, WhatHasNoCopyLeftComesFirst) {
  Open(4, 300, 2);
  const auto both = [&](const std::string& a, const std::string& b) {
    std::set<std::string> names;
    proto::AdminRequest list;
    list.mutable_list_functions();
    const auto functions = world_.Ask(list);
    for (const auto& function : functions->functions()) {
      const std::set<std::string> on(function.adopted_by().begin(), function.adopted_by().end());
      if (on == std::set<std::string>{a, b}) names.insert(function.record().key().name());
    }
    return names;
  };
  const auto gone = both("node-1", "node-2");
  ASSERT_GT(gone.size(), 10u);
  const auto before = EventsOf("model-adopted").size();
  world_.KillNode("node-1");
  world_.KillNode("node-2");
  world_.Run(seconds(2));
  const auto adopted = EventsOf("model-adopted");
  std::set<std::string> first;
  for (auto i = before; i < adopted.size() && first.size() < gone.size(); ++i)
    for (const auto& name : gone)
      if (adopted[i] == absl::StrCat("function '", name, "'")) first.insert(name);
  EXPECT_EQ(Short(2), Names());
  // Each living node adopts models in the order in which it was told to, so the first adoptions are those
  // that leave a model without a copy no longer.
  EXPECT_GE(first.size(), gone.size() * 9 / 10);
}

TEST_F(Migration, TheHotFunctionsOfADeadOrDrainingNodeAreElsewhereFirst) {
  for (const bool dies : {true, false}) {
    SCOPED_TRACE(dies ? "dies" : "drains");
    const std::string gone = dies ? "node-1" : "node-2";
    if (dies) Open(3, 300, 1);
    std::vector<std::string> there;
    proto::AdminRequest list;
    list.mutable_list_functions();
    const auto functions = world_.Ask(list);
    ASSERT_TRUE(functions.ok()) << functions.status();
    for (const auto& function : functions->functions())
      if (function.adopted_by(0) == gone) there.push_back(function.record().key().name());
    ASSERT_GT(there.size(), 60u);
    // Three functions that stand in the middle, whatever order the others have.
    const Names hot = {there[30], there[40], there[50]};
    for (int i = 0; i < 4; ++i)
      for (const auto& name : hot) EXPECT_EQ(Infer(name, seconds(5)).code(), 0);
    world_.Run(seconds(1));  // a heartbeat tells of them
    const auto before = EventsOf("model-adopted").size();
    if (dies) {
      world_.KillNode(gone);
    } else {
      proto::AdminRequest drain;
      drain.mutable_drain()->set_name(gone);
      drain.mutable_drain()->set_drain(true);
      ASSERT_TRUE(world_.Ask(drain).ok());
    }
    world_.Run(seconds(3));
    EXPECT_EQ(Short(1, gone), Names());
    const auto adopted = EventsOf("model-adopted");
    ASSERT_GE(adopted.size(), before + there.size());
    // Two living nodes adopt two models at a time.
    for (const auto& name : hot) {
      const auto at = std::find(adopted.begin() + static_cast<std::ptrdiff_t>(before), adopted.end(),
                                absl::StrCat("function '", name, "'")) -
                      adopted.begin();
      EXPECT_LT(at, static_cast<std::ptrdiff_t>(before + 12)) << name;
    }
  }
}

TEST_F(Migration, ADrainingNodesFunctionsAreElsewhereWithinTwoSecondsAndServedMeanwhile) {
  Open(3, 1000, 1);
  ASSERT_GT(HeldBy("node-1"), 200u);
  proto::AdminRequest drain;
  drain.mutable_drain()->set_name("node-1");
  drain.mutable_drain()->set_drain(true);
  ASSERT_TRUE(world_.Ask(drain).ok());
  world_.Run(seconds(2));
  EXPECT_EQ(Short(1, "node-1"), Names());
  EXPECT_EQ(HeldBy("node-1"), 0u);
}

TEST_F(Migration, ANodeThatComesTakesItsShareAndNoMore) {
  Open(3, 600, 1);
  std::map<std::string, std::size_t> before;
  for (const char* node : {"node-1", "node-2", "node-3"}) before[node] = HeldBy(node);
  StartNode("node-4");
  world_.Run(seconds(4));
  EXPECT_EQ(Short(1), Names());
  EXPECT_NEAR(static_cast<double>(HeldBy("node-4")), 150, 60);
  for (const auto& [node, count] : before) EXPECT_LE(HeldBy(node), count) << "an old node took another model";
}

TEST_F(Migration, ADeadNodeIsReplacedAndWhatFailsIsTriedAgain) {
  std::unique_ptr<sim::SimulatedProvisioner> provisioner = std::make_unique<sim::SimulatedProvisioner>(
      world_.system(), seconds(20), [this](const ProvisionOrder& order) {
        if (order.action == "replace") StartNode(order.node);
      });
  Open(2, 20, 1, [&](ManagerOptions& options) { options.provisioner = provisioner.get(); });
  provisioner->Refuse(1);
  world_.KillNode("node-2");
  world_.Run(seconds(29));
  EXPECT_TRUE(provisioner->orders().empty()) << "the dead node may come back by itself";
  world_.Run(seconds(3));
  ASSERT_EQ(provisioner->orders().size(), 1u);
  EXPECT_EQ(provisioner->orders()[0].action, "replace");
  EXPECT_EQ(provisioner->orders()[0].node, "node-2");
  EXPECT_THAT(provisioner->orders()[0].json, HasSubstr(R"({"action":"replace","node":"node-2","status":{)"));
  EXPECT_THAT(EventsOf("provision-failed"),
              ElementsAre("replace node-2: no machine is to be had; tried again in 10 s"));
  world_.Run(seconds(10));
  EXPECT_EQ(provisioner->orders().size(), 2u);
  EXPECT_THAT(EventsOf("provision-taken-up"), ElementsAre("replace node-2"));
  world_.Run(seconds(25));
  EXPECT_GT(HeldBy("node-2"), 0u) << "the new machine holds no model";
  EXPECT_EQ(provisioner->orders().size(), 2u);
}

TEST_F(Migration, AnIdleNodeIsDrainedAndGivenBackWhenItHasNothingLeft) {
  auto provisioner = std::make_unique<sim::SimulatedProvisioner>(
      world_.system(), seconds(1), [this](const ProvisionOrder& order) {
        if (order.action == "drain") caf::anon_send(world_.node(order.node).member, proto::LeaveRequest());
      });
  Open(3, 30, 1, [&](ManagerOptions& options) {
    options.provisioner = provisioner.get();
    options.provisioning.min_nodes = 2;
    options.provisioning.max_nodes = 4;
  });
  world_.Run(std::chrono::minutes(10));
  ASSERT_EQ(provisioner->orders().size(), 1u) << "a machine was ordered though two nodes stay";
  EXPECT_EQ(provisioner->orders()[0].action, "drain");
  EXPECT_EQ(Short(1, provisioner->orders()[0].node), Names());
  EXPECT_EQ(Infer("f7", seconds(2)).code(), 0);
}

}  // namespace
}  // namespace troupe::actors
