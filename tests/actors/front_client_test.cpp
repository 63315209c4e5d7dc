// The client by which HTTP threads call functions: calls go straight into the router, and each is answered,
// however the router or the caller ends.
#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/gateway/front.hpp"
#include "actors/gateway/router.hpp"
#include "actors/gateway/shell_tensors.hpp"
#include "tests/actors/world.hpp"
#include "transport/fake_tensor_channel.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FrontClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world_.Deploy("resnet", MiB(100)).ok());
    FrontOptions options;
    options.gateway = "gateway-1";
    options.manager = "manager";
    options.view = world_.view();
    options.router_inbox = world_.router_inbox();
    front_ =
        MakeFrontClient(world_.system(), std::move(options), world_.router(), world_.directory(), channel_);
    world_.Settle();
  }
  void TearDown() override {
    front_.reset();
    world_.Run(seconds(1));
  }
  void Infer(const std::string& function, std::uint64_t call) {
    proto::InferRequest request;
    request.mutable_function()->set_name(function);
    request.set_timeout_ns(Duration(seconds(10)).count());
    request.set_call(call);
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("x");
    input.mutable_spec()->set_type(proto::FP32);
    input.mutable_spec()->add_shape(1);
    input.mutable_spec()->add_shape(4);
    input.mutable_data()->set_inlined("abcd");
    front_->Infer(std::move(request),
                  [this](proto::InferReply reply) { replies_.push_back(std::move(reply)); });
  }
  [[nodiscard]] absl::StatusCode Code(std::size_t i) const {
    return static_cast<absl::StatusCode>(replies_.at(i).code());
  }

  World world_{1, 1};
  transport::FakeTensorChannel channel_{transport::FakeTensorChannel::NewWorld(), KiB(200)};
  std::unique_ptr<FrontClient> front_;
  std::vector<proto::InferReply> replies_;
};

TEST_F(FrontClientTest, AFunctionIsServed) {
  Infer("resnet", 1);
  EXPECT_TRUE(replies_.empty()) << "answered on the caller's thread";
  world_.Run(seconds(1));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(Code(0), absl::StatusCode::kOk) << replies_[0].message();
  EXPECT_EQ(replies_[0].outputs(0).data().inlined(), "abcd");
}

TEST_F(FrontClientTest, AFunctionThatIsNotThereIsNotFound) {
  Infer("absent", 1);
  world_.Run(milliseconds(10));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(Code(0), absl::StatusCode::kNotFound) << replies_[0].message();
}

TEST_F(FrontClientTest, ARouterThatHasNotJoinedDoesNotSayThatAFunctionIsNotThere) {
  RouterOptions router;
  router.gateway = "gateway-late";
  router.id = 99;
  FrontOptions options;
  options.gateway = "gateway-late";
  options.manager = "manager";
  options.view = router.view;
  options.router_inbox = router.inbox;
  const auto late = SpawnRouter(world_.system(), std::move(router), world_.directory());
  ASSERT_TRUE(late.ok()) << late.status();
  front_ = MakeFrontClient(world_.system(), std::move(options), *late, world_.directory(), channel_);
  Infer("resnet", 1);
  world_.Run(milliseconds(10));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(Code(0), absl::StatusCode::kUnavailable) << replies_[0].message();
  caf::anon_send_exit(*late, caf::exit_reason::user_shutdown);
}

TEST_F(FrontClientTest, ACancelledCallIsAnsweredSoAndOthersAreNotTouched) {
  Infer("resnet", 1);
  Infer("resnet", 2);
  world_.Run(milliseconds(1));
  ASSERT_TRUE(replies_.empty());
  front_->Cancel(1);
  world_.Run(milliseconds(1));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(Code(0), absl::StatusCode::kCancelled) << replies_[0].message();
  world_.Run(seconds(1));
  ASSERT_EQ(replies_.size(), 2u);
  EXPECT_EQ(Code(1), absl::StatusCode::kOk) << replies_[1].message();
}

TEST_F(FrontClientTest, CallsAreAnsweredOnceWhenTheRouterEnds) {
  Infer("resnet", 1);
  world_.Run(milliseconds(1));
  Infer("resnet", 2);  // the call is still in the inbox
  caf::anon_send_exit(world_.router(), caf::exit_reason::kill);
  world_.Settle();
  ASSERT_EQ(replies_.size(), 2u);
  EXPECT_EQ(Code(0), absl::StatusCode::kUnavailable) << replies_[0].message();
  Infer("resnet", 3);
  EXPECT_EQ(replies_.size(), 3u) << "no router is left to answer later";
  world_.Run(seconds(1));
  ASSERT_EQ(replies_.size(), 3u);
  EXPECT_EQ(Code(2), absl::StatusCode::kUnavailable);
}

constexpr std::size_t kLarge = 100u << 10;  // beyond what travels inside a message to a worker

// A router all of whose answers have one output, which lies in a node's memory.
struct Outputs {
  transport::FakeTensorChannel* node = nullptr;
  std::uint64_t kept = 0;
  std::vector<std::uint64_t> released;
  std::vector<proto::InferRequest> asked;
  bool lost = false;          // the node has lost each output before it is read
  std::uint64_t claimed = 0;  // more bytes than the output has
};

proto::InferReply KeptOutput(Outputs& outputs) {
  proto::InferReply reply;
  reply.set_release(++outputs.kept);
  auto& output = *reply.add_outputs();
  output.mutable_spec()->set_name("y");
  const std::string bytes(kLarge, 'y');
  *output.mutable_data() = *outputs.node->PutSlice(std::as_bytes(std::span(bytes)));
  if (outputs.lost) static_cast<void>(outputs.node->Release(output.data()));
  if (outputs.claimed > 0) output.mutable_data()->mutable_arena()->set_length(outputs.claimed);
  return reply;
}

RouterActor::behavior_type OutputsRouter(RouterActor::pointer, std::shared_ptr<Outputs> outputs) {
  return {
      [outputs](const proto::InferRequest& request) {
        outputs->asked.push_back(request);
        return KeptOutput(*outputs);
      },
      [](const proto::CancelInfer&) {},
      [outputs](const proto::ReleaseOutputs& release) { outputs->released.push_back(release.release()); },
      [](const proto::ExportTensors&) { return proto::ExportedTensors(); },
      [](const proto::CreditGrant&) {},
      [](const proto::ClusterUpdate&) {},
      [](const proto::MemberJoined&) {},
      [](const proto::DescribeMember&) { return proto::MemberReport(); },
  };
}

// A shell has no memory that others read: its large tensors go into the gateway's, and the outputs into its answer.
class ShellTensorsTest : public FrontClientTest {
 protected:
  void SetUp() override {
    FrontClientTest::SetUp();
    outputs_->node = &node_;
    router_ = world_.system().spawn(OutputsRouter, outputs_);
    FrontOptions options;
    options.gateway = "gateway-2";
    options.manager = "manager";
    options.view = world_.view();
    front_ = MakeFrontClient(world_.system(), std::move(options), router_, world_.directory(), channel_);
  }
  void TearDown() override {
    caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
    FrontClientTest::TearDown();
  }
  // As a shell does, which is gone as an actor as soon as it has the answer.
  void Ask(std::size_t input) {
    world_.system().spawn([this, input](caf::event_based_actor* shell) {
      proto::InferRequest request;
      request.mutable_function()->set_name("resnet");
      request.add_inputs()->mutable_data()->set_inlined(std::string(input, 'x'));
      shell->request(front_->actor(), caf::infinite, request).then([this](const proto::InferReply& reply) {
        replies_.push_back(reply);
      });
    });
    world_.Settle();
  }

  const std::shared_ptr<transport::FakeTensorChannel::World> memory_ =
      transport::FakeTensorChannel::NewWorld();
  transport::FakeTensorChannel node_{memory_, KiB(400), "elsewhere"};
  transport::FakeTensorChannel channel_{memory_, KiB(200)};
  const std::shared_ptr<Outputs> outputs_ = std::make_shared<Outputs>();
  RouterActor router_;
};

TEST_F(ShellTensorsTest, OutputsOfAnotherHostComeInTheAnswerAndAreReleased) {
  Ask(4);
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(Code(0), absl::StatusCode::kOk) << replies_[0].message();
  EXPECT_EQ(replies_[0].outputs(0).data().inlined(), std::string(kLarge, 'y'));
  EXPECT_EQ(replies_[0].release(), 0u);
  EXPECT_EQ(outputs_->released, std::vector<std::uint64_t>{1});
  EXPECT_EQ(channel_.used(), Bytes(0));
}

TEST_F(ShellTensorsTest, OutputsThatWereLostOrAreTooLargeAreAnErrorAndReleased) {
  outputs_->lost = true;
  Ask(4);
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(Code(0), absl::StatusCode::kUnavailable) << replies_[0].message();
  outputs_->lost = false;
  outputs_->claimed = kMostShellOutputs.count() + 1;
  Ask(4);
  ASSERT_EQ(replies_.size(), 2u);
  EXPECT_EQ(Code(1), absl::StatusCode::kFailedPrecondition) << replies_[1].message();
  EXPECT_EQ(outputs_->released, (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(ShellTensorsTest, ALargeInputLiesInTheArenaWhileItsRequestIsUnderWay) {
  Ask(kLarge);
  Ask(4);
  ASSERT_EQ(outputs_->asked.size(), 2u);
  const auto& placed = outputs_->asked[0].inputs(0).data();
  ASSERT_TRUE(placed.has_arena());
  EXPECT_EQ(transport::SizeOf(placed), Bytes(kLarge));
  EXPECT_EQ(outputs_->asked[1].inputs(0).data().inlined(), "xxxx");
  EXPECT_EQ(channel_.used(), Bytes(0)) << "it is free again when the request has ended";
  Ask(300u << 10);
  ASSERT_EQ(replies_.size(), 3u);
  EXPECT_EQ(Code(2), absl::StatusCode::kResourceExhausted) << replies_[2].message();
  EXPECT_EQ(outputs_->asked.size(), 2u);
}

}  // namespace
}  // namespace troupe::actors
