// Inputs that lie on another host: first RemoteInputs alone, then nodes that fetch the inputs before they
// give the run to a worker. Hosts are tensor channels in memory, so that a test sees and holds each transfer.
#include "actors/node/remote_inputs.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/actors/world.hpp"
#include "transport/fake_tensor_channel.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::FakeTensorChannel;
using Tensors = RemoteInputs::Tensors;

constexpr Bytes kSize(100000);

std::string Pattern(char seed) {
  std::string bytes(kSize.count(), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * 31 + static_cast<unsigned char>(seed));
  return bytes;
}

proto::TensorRef PutPattern(transport::TensorChannel& channel, char seed) {
  const std::string bytes = Pattern(seed);
  auto ref = channel.Put(std::as_bytes(std::span(bytes)), "x");
  EXPECT_TRUE(ref.ok()) << ref.status();
  return *ref;
}

void AddInput(Tensors& inputs, const std::string& name, const proto::TensorRef& ref) {
  auto& input = *inputs.Add();
  input.mutable_spec()->set_name(name);
  input.mutable_spec()->set_type(proto::UINT8);
  input.mutable_spec()->add_shape(static_cast<std::int64_t>(kSize.count()));
  *input.mutable_data() = ref;
}

std::string TextAt(transport::TensorChannel& channel, const proto::TensorRef& ref) {
  const auto data = channel.Fetch(ref);
  EXPECT_TRUE(data.ok()) << data.status();
  if (!data.ok()) return "";
  return {reinterpret_cast<const char*>(data->bytes().data()), data->bytes().size()};
}

// The actor that owns a RemoteInputs; a test calls it from outside, between the steps of the scheduler.
class Owner : public caf::event_based_actor {
 public:
  Owner(caf::actor_config& config, transport::TensorChannel* channel, RemoteInputLimits limits)
      : caf::event_based_actor(config), inputs(channel, limits) {}
  caf::behavior make_behavior() override {
    return {[this](const proto::Continue& message) { inputs.Resume(message); }};
  }
  void on_exit() override { inputs.Clear(); }
  RemoteInputs inputs;
};

class RemoteInputsTest : public ::testing::Test {
 protected:
  explicit RemoteInputsTest(RemoteInputLimits limits = {Bytes(250000), seconds(10)}) {
    owner_ = world_.system().spawn<Owner>(&here_, limits);
    world_.Settle();
  }
  ~RemoteInputsTest() override {
    caf::anon_send_exit(owner_, caf::exit_reason::user_shutdown);
    owner_ = nullptr;
    world_.Settle();
  }

  Owner& actor() { return *static_cast<Owner*>(caf::actor_cast<caf::abstract_actor*>(owner_)); }
  RemoteInputs& inputs() { return actor().inputs; }
  Tensors Far(char seed) {
    Tensors tensors;
    AddInput(tensors, "x", PutPattern(there_, seed));
    return tensors;
  }
  void Bring(std::uint64_t sequence, const Tensors& tensors, Time expiry = Time::max(),
             std::uint64_t router = 7) {
    inputs().Bring(&actor(), {router, sequence}, tensors, expiry,
                   [this, sequence](absl::StatusOr<Tensors> result) { done_[sequence] = std::move(result); });
    world_.Settle();
  }
  bool CompleteNext(const absl::Status& failure = absl::OkStatus()) {
    const bool any = here_.CompleteNext(failure);
    world_.Settle();
    return any;
  }
  absl::Status StatusOf(std::uint64_t sequence) {
    const auto it = done_.find(sequence);
    return it == done_.end() ? absl::UnknownError("not done") : it->second.status();
  }

  std::shared_ptr<FakeTensorChannel::World> memory_ = FakeTensorChannel::NewWorld();
  FakeTensorChannel there_{memory_, MiB(8), "there"};
  FakeTensorChannel here_{memory_, KiB(300), "here"};
  World world_{0};
  caf::actor owner_;
  std::map<std::uint64_t, absl::StatusOr<Tensors>> done_;
};

TEST_F(RemoteInputsTest, WhatIsNearNeedsNothing) {
  Tensors tensors;
  EXPECT_FALSE(inputs().Needed(tensors));
  proto::TensorRef small;
  small.set_inlined("four");
  AddInput(tensors, "a", small);
  AddInput(tensors, "b", PutPattern(here_, 'b'));
  EXPECT_FALSE(inputs().Needed(tensors));
  AddInput(tensors, "c", PutPattern(there_, 'c'));
  EXPECT_TRUE(inputs().Needed(tensors));
  EXPECT_FALSE(RemoteInputs(nullptr, {}).Needed(tensors)) << "without a channel the worker refuses the input";
}

TEST_F(RemoteInputsTest, BringsWhatLiesElsewhereAndLetsGoOfItWithTheRequest) {
  Tensors tensors = Far('a');
  proto::TensorRef small;
  small.set_inlined("four");
  AddInput(tensors, "b", small);
  Bring(1, tensors);
  ASSERT_TRUE(StatusOf(1).ok()) << StatusOf(1);
  const auto& brought = *done_.at(1);
  ASSERT_EQ(brought.size(), 2);
  EXPECT_FALSE(inputs().Needed(brought));
  EXPECT_EQ(TextAt(here_, brought[0].data()), Pattern('a'));
  EXPECT_EQ(brought[0].spec().name(), "x");
  EXPECT_EQ(brought[1].data().inlined(), "four");
  EXPECT_EQ(inputs().used(), kSize);
  EXPECT_EQ(here_.used(), kSize);
  EXPECT_EQ(inputs().pending(), 0u);
  EXPECT_TRUE(inputs().Forget({7, 1}));
  EXPECT_FALSE(inputs().Forget({7, 1}));
  EXPECT_EQ(inputs().used(), Bytes(0));
  EXPECT_EQ(here_.used(), Bytes(0));
}

TEST_F(RemoteInputsTest, NothingIsReportedBeforeAllOfItIsHere) {
  here_.Hold();
  Tensors tensors = Far('a');
  AddInput(tensors, "y", PutPattern(there_, 'b'));
  Bring(1, tensors);
  EXPECT_TRUE(inputs().Pending({7, 1}));
  ASSERT_TRUE(CompleteNext());
  EXPECT_TRUE(done_.empty());
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(StatusOf(1).ok()) << StatusOf(1);
  EXPECT_EQ(TextAt(here_, (*done_.at(1))[1].data()), Pattern('b'));
  EXPECT_FALSE(inputs().Pending({7, 1}));
}

TEST_F(RemoteInputsTest, OneTransferThatFailsFailsTheRequestAndFreesTheRest) {
  here_.Hold();
  Tensors tensors = Far('a');
  AddInput(tensors, "y", PutPattern(there_, 'b'));
  Bring(1, tensors);
  ASSERT_TRUE(CompleteNext(absl::UnavailableError("the owner is gone")));
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(1)));
  EXPECT_EQ(StatusOf(1).message(), "input 'x' on another host: the owner is gone");
  EXPECT_EQ(inputs().used(), kSize) << "the other transfer cannot be stopped";
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(inputs().used(), Bytes(0));
  EXPECT_EQ(here_.used(), Bytes(0));
  EXPECT_EQ(inputs().pending(), 0u);
  EXPECT_FALSE(inputs().Forget({7, 1}));
}

TEST_F(RemoteInputsTest, AForgottenTransferIsNotReportedAndItsBytesCountUntilItEnds) {
  here_.Hold();
  Bring(1, Far('a'));
  EXPECT_TRUE(inputs().Forget({7, 1}));
  EXPECT_EQ(inputs().pending(), 0u);
  EXPECT_EQ(inputs().used(), kSize);
  // A router that sends a request anew uses the same id: bytes that arrive late for the first one are not
  // taken for the second.
  Bring(1, Far('b'));
  ASSERT_TRUE(CompleteNext());
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(inputs().used(), kSize);
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(StatusOf(1).ok()) << StatusOf(1);
  EXPECT_EQ(TextAt(here_, (*done_.at(1))[0].data()), Pattern('b'));
}

TEST_F(RemoteInputsTest, WhatExceedsTheLimitWaitsInTheOrderOfArrival) {
  here_.Hold();
  for (std::uint64_t i = 1; i <= 5; ++i) Bring(i, Far(static_cast<char>('a' + i)));
  EXPECT_EQ(here_.held(), 2u) << "the limit is 250,000 bytes at once";
  EXPECT_EQ(inputs().pending(), 5u);
  EXPECT_TRUE(inputs().Forget({7, 3})) << "a request that waits is forgotten";
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(here_.held(), 1u) << "the first input is here and keeps its room";
  EXPECT_TRUE(inputs().Forget({7, 1}));
  EXPECT_EQ(here_.held(), 2u) << "the fourth transfer has not begun";
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(CompleteNext());
  EXPECT_TRUE(StatusOf(2).ok() && StatusOf(4).ok());
  EXPECT_FALSE(done_.contains(5) || done_.contains(3));
  EXPECT_TRUE(inputs().Forget({7, 2}) && inputs().Forget({7, 4}));
  ASSERT_TRUE(CompleteNext());
  EXPECT_TRUE(StatusOf(5).ok());
  EXPECT_TRUE(inputs().Forget({7, 5}));
  EXPECT_EQ(here_.used(), Bytes(0));
}

TEST_F(RemoteInputsTest, WhatCanNeverFitIsRefusedAtOnceAlsoWhenSizesWrapRound) {
  Tensors tensors;
  for (const char* name : {"a", "b", "c"}) AddInput(tensors, name, PutPattern(there_, *name));
  Bring(1, tensors);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(1))) << StatusOf(1);
  tensors.Clear();
  for (const char* name : {"a", "b"}) {
    AddInput(tensors, name, PutPattern(there_, *name));
    tensors.rbegin()->mutable_data()->mutable_arena()->set_length(std::uint64_t{1} << 63);
  }
  Bring(2, tensors);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(2))) << StatusOf(2);
  EXPECT_EQ(inputs().used(), Bytes(0));
  EXPECT_EQ(inputs().pending(), 0u);
}

TEST_F(RemoteInputsTest, AFullArenaFailsTheTransfer) {
  const auto taken = here_.Reserve(Bytes(250000));
  ASSERT_TRUE(taken.ok());
  Bring(1, Far('a'));
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(1))) << StatusOf(1);
  EXPECT_EQ(inputs().used(), Bytes(0));
}

TEST_F(RemoteInputsTest, KnowsWhoseInputsAreOnTheirWay) {
  here_.Hold();
  Bring(1, Far('a'), Time::max(), 7);
  Bring(2, Far('b'), Time::max(), 8);
  Bring(3, Far('c'), Time::max(), 7);
  EXPECT_EQ(inputs().PendingOf(7), (std::vector<node::RequestId>{{7, 1}, {7, 3}}));
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(inputs().PendingOf(7), (std::vector<node::RequestId>{{7, 3}}));
  EXPECT_TRUE(inputs().PendingOf(9).empty());
}

TEST_F(RemoteInputsTest, TransfersThatEndAfterTheirActorAreFreed) {
  here_.Hold();
  Bring(1, Far('a'));
  caf::anon_send_exit(owner_, caf::exit_reason::user_shutdown);
  world_.Settle();
  here_.Resume();
  world_.Settle();
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(here_.used(), Bytes(0));
}

// Two nodes and a gateway, each on a host of its own.
class RemoteNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world_.Deploy("f", MiB(1)).ok());
    world_.Run(seconds(1));  // both nodes hold a copy
  }
  void TearDown() override {
    for (auto* channel : {&one_, &two_}) {
      channel->Resume();
      world_.Run(seconds(1));
      EXPECT_EQ(channel->used(), Bytes(0)) << "a slice was not released in the end";
    }
  }

  void Hold() {
    one_.Hold();
    two_.Hold();
  }
  // The node that is fetching the input now, and the other one.
  FakeTensorChannel& Busy() { return one_.held() > 0 ? one_ : two_; }
  FakeTensorChannel& Idle() { return one_.held() > 0 ? two_ : one_; }
  std::string NameOf(const FakeTensorChannel& channel) { return &channel == &one_ ? "node-1" : "node-2"; }

  void Infer(std::uint64_t call, Duration timeout = seconds(10)) {
    proto::InferRequest request;
    request.mutable_function()->set_name("f");
    request.set_timeout_ns(timeout.count());
    request.set_call(call);
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("x");
    input.mutable_spec()->set_type(proto::FP32);
    input.mutable_spec()->add_shape(static_cast<std::int64_t>(kSize.count() / 16));
    input.mutable_spec()->add_shape(4);
    *input.mutable_data() = PutPattern(gateway_, static_cast<char>(call));
    client_ = world_.system().spawn([this, request](caf::event_based_actor* self) -> caf::behavior {
      self->request(world_.router(), caf::infinite, request).then([this](const proto::InferReply& reply) {
        replies_.push_back(reply);
      });
      return {[this, self](const proto::CancelInfer& cancel) { self->send(world_.router(), cancel); }};
    });
    world_.Run(milliseconds(5));
  }
  proto::NodeLoad LoadOf(const std::string& node) {
    proto::NodeLoad load;
    world_.system().spawn([controller = world_.node(node).controller, &load](caf::event_based_actor* self) {
      self->request(controller, caf::infinite, proto::DescribeMember())
          .then([&load](const proto::MemberReport& report) { load = report.load(); });
    });
    world_.Settle();
    return load;
  }

  std::shared_ptr<FakeTensorChannel::World> memory_ = FakeTensorChannel::NewWorld();
  FakeTensorChannel gateway_{memory_, MiB(64), "gateway-host"};
  FakeTensorChannel one_{memory_, MiB(1), "host-1"};
  FakeTensorChannel two_{memory_, MiB(1), "host-2"};
  World world_{2, 1, {}, {{"node-1", &one_}, {"node-2", &two_}}};
  caf::actor client_;
  std::vector<proto::InferReply> replies_;
};

TEST_F(RemoteNodes, AWorkerIsToldWhereTheInputLiesOnItsOwnHost) {
  Hold();
  Infer(1);
  auto& busy = Busy();
  EXPECT_EQ(busy.held(), 1u);
  EXPECT_EQ(LoadOf(NameOf(busy)).queued(), 1u) << "a node that stops does not wait for the request";
  world_.Run(milliseconds(100));
  EXPECT_TRUE(replies_.empty());
  ASSERT_TRUE(busy.CompleteNext());
  world_.Run(milliseconds(100));
  ASSERT_EQ(replies_.size(), 1u);
  ASSERT_EQ(replies_[0].code(), 0) << replies_[0].message();
  // The fake worker answers with the references that it was given.
  EXPECT_EQ(replies_[0].outputs(0).data().arena().host(), NameOf(busy) == "node-1" ? "host-1" : "host-2");
  EXPECT_EQ(busy.used(), Bytes(0));
}

TEST_F(RemoteNodes, WhatOneNodeCannotBringAnotherDoes) {
  Hold();
  Infer(1);
  auto& first = Busy();
  auto& second = Idle();
  ASSERT_TRUE(first.CompleteNext(absl::UnavailableError("no route")));
  world_.Run(milliseconds(20));
  ASSERT_EQ(second.held(), 1u);
  ASSERT_TRUE(second.CompleteNext());
  world_.Run(milliseconds(100));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].code(), 0) << replies_[0].message();
  EXPECT_EQ(replies_[0].node(), NameOf(second));
  EXPECT_EQ(replies_[0].attempts(), 1u) << "a worker was lost";
}

TEST_F(RemoteNodes, WhatNoNodeCanBringSaysWhy) {
  Hold();
  Infer(1);
  for (int i = 0; i < 1000 && replies_.empty(); ++i) {
    one_.CompleteNext(absl::UnavailableError("no route"));
    two_.CompleteNext(absl::UnavailableError("no route"));
    world_.Run(milliseconds(20));
  }
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_NE(replies_[0].message().find("input 'x' on another host: no route"), std::string::npos)
      << replies_[0].message();
}

TEST_F(RemoteNodes, ACancelledRequestLeavesNothingBehind) {
  Hold();
  Infer(1);
  proto::CancelInfer cancel;
  cancel.set_call(1);
  caf::anon_send(client_, cancel);
  world_.Run(milliseconds(10));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(LoadOf("node-1").queued() + LoadOf("node-2").queued(), 0u);
  one_.Resume();
  two_.Resume();
  world_.Run(milliseconds(10));
  EXPECT_EQ(one_.used() + two_.used(), Bytes(0));
  EXPECT_EQ(LoadOf("node-1").served() + LoadOf("node-2").served(), 0u) << "the request ran";
  // The request's credit came back: as many requests as before go through.
  for (std::uint64_t call = 2; call < 40; ++call) Infer(call);
  world_.Run(seconds(2));
  EXPECT_EQ(replies_.size(), 39u);
  for (std::size_t i = 1; i < replies_.size(); ++i) EXPECT_EQ(replies_[i].code(), 0) << replies_[i].message();
}

TEST_F(RemoteNodes, ATransferLastsNoLongerThanItsRequest) {
  Hold();
  Infer(1, seconds(1));
  world_.Run(seconds(2));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded))
      << replies_[0].message();
  EXPECT_EQ(LoadOf("node-1").queued() + LoadOf("node-2").queued(), 0u);
}

TEST_F(RemoteNodes, ANodeThatDiesInTheMiddleIsReplaced) {
  Hold();
  Infer(1);
  auto& dead = Busy();
  auto& living = Idle();
  world_.KillNode(NameOf(dead));
  world_.Run(seconds(1));
  ASSERT_EQ(living.held(), 1u);
  ASSERT_TRUE(living.CompleteNext());
  world_.Run(milliseconds(100));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].code(), 0) << replies_[0].message();
  EXPECT_EQ(replies_[0].node(), NameOf(living));
}

TEST_F(RemoteNodes, AWorkerThatDiesInTheMiddleIsReplacedAndTheInputIsHereStill) {
  Hold();
  Infer(1);
  auto& busy = Busy();
  ASSERT_TRUE(busy.CompleteNext());
  world_.Run(milliseconds(5));
  EXPECT_EQ(LoadOf(NameOf(busy)).running(), 1u);
  world_.node(NameOf(busy)).workers[0]->kill();
  world_.Run(seconds(1));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].code(), 0) << replies_[0].message();
  EXPECT_EQ(replies_[0].attempts(), 2u);
  EXPECT_EQ(one_.held() + two_.held(), 0u) << "an input was fetched a second time";
}

TEST_F(RemoteNodes, ARouterThatDiesInTheMiddleLeavesNothingBehind) {
  Hold();
  Infer(1);
  const auto name = NameOf(Busy());
  EXPECT_EQ(LoadOf(name).queued(), 1u);
  caf::anon_send_exit(world_.router(), caf::exit_reason::kill);
  world_.Run(milliseconds(10));
  EXPECT_EQ(LoadOf(name).queued(), 0u);
  one_.Resume();
  two_.Resume();
  world_.Run(milliseconds(10));
  EXPECT_EQ(one_.used() + two_.used(), Bytes(0));
}

}  // namespace
}  // namespace troupe::actors
