// The client by which HTTP threads call functions: calls go straight into the router, and each is answered,
// however the router or the caller ends.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "actors/gateway/front.hpp"
#include "actors/gateway/router.hpp"
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

// A router all of whose answers have outputs that lie in a node's memory.
struct Outputs {
  std::uint64_t kept = 0;
  std::vector<std::uint64_t> released;
};

RouterActor::behavior_type OutputsRouter(RouterActor::pointer, std::shared_ptr<Outputs> outputs) {
  return {
      [outputs](const proto::InferRequest&) {
        proto::InferReply reply;
        reply.set_release(++outputs->kept);
        return reply;
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

// A shell that was killed after its request never says that it has read the answer: the slices would lie in
// the worker's memory until the router ends, and an isolated runtime could never be taken.
TEST_F(FrontClientTest, OutputsThatAShellNeverReleasesAreReleasedForIt) {
  const auto outputs = std::make_shared<Outputs>();
  const RouterActor router = world_.system().spawn(OutputsRouter, outputs);
  FrontOptions options;
  options.gateway = "gateway-2";
  options.manager = "manager";
  options.view = world_.view();
  options.read_limit = seconds(3);
  front_ = MakeFrontClient(world_.system(), std::move(options), router, world_.directory(), channel_);
  const auto ask = [&] {
    world_.system().spawn([front = front_->actor()](caf::event_based_actor* shell) {
      proto::InferRequest request;
      request.mutable_function()->set_name("resnet");
      shell->request(front, caf::infinite, request).then([](const proto::InferReply&) {});
    });
    world_.Settle();
  };
  ask();
  proto::ReleaseOutputs read;
  read.set_release(1);
  caf::anon_send(front_->actor(), read);
  ask();
  EXPECT_EQ(outputs->kept, 2u);
  world_.Run(milliseconds(2999));
  EXPECT_EQ(outputs->released, std::vector<std::uint64_t>{1}) << "the second may still be read";
  world_.Run(milliseconds(1));
  EXPECT_EQ(outputs->released, (std::vector<std::uint64_t>{1, 2})) << "the first is not released again";
  caf::anon_send(front_->actor(), read);
  world_.Settle();
  EXPECT_EQ(outputs->released.size(), 3u) << "the router knows which outputs it keeps";
  caf::anon_send_exit(router, caf::exit_reason::user_shutdown);
}

}  // namespace
}  // namespace troupe::actors
