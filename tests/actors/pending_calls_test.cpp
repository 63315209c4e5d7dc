#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include "actors/core/call.hpp"
#include "actors/core/time.hpp"
#include "actors/interfaces/message_types.hpp"
#include "proto/local.pb.h"
#include "proto/request.pb.h"

namespace troupe::actors {
namespace {

class CallTest : public ::testing::Test {
 protected:
  CallTest() : config_(Configure()), system_(*config_) {}
  static std::unique_ptr<caf::actor_system_config> Configure() {
    auto config = std::make_unique<caf::actor_system_config>();
    RegisterMessageTypes(*config);
    config->set("scheduler.policy", caf::atom("testing"));
    return config;
  }
  auto& Scheduler() { return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler()); }
  void Settle() {
    while (Scheduler().try_run_once()) {
    }
  }
  // An actor that never answers. It has to keep its promises, since this version of CAF sends no error for a
  // promise that is dropped.
  caf::actor SpawnSilent() {
    return system_.spawn([](caf::event_based_actor* self) -> caf::behavior {
      return {[self](proto::CancelInfer&) {
        self->make_response_promise();
        return caf::delegated<proto::InferReply>();
      }};
    });
  }

  std::unique_ptr<caf::actor_system_config> config_;
  caf::actor_system system_;
};

struct Caller {
  PendingCalls calls;
  std::vector<absl::Status> answers;
};

TEST_F(CallTest, ADeadPeerFailsTheCallAtOnceAndOnlyOnce) {
  auto state = std::make_shared<Caller>();
  auto peer = SpawnSilent();
  auto caller = system_.spawn([state, peer](caf::event_based_actor* self) -> caf::behavior {
    self->monitor(peer);
    self->set_down_handler([state](caf::down_msg& down) { state->calls.PeerDown(down.source); });
    Call<proto::InferReply>(
        self, state->calls, peer, std::chrono::seconds(10), proto::CancelInfer(),
        [state](absl::StatusOr<proto::InferReply> r) { state->answers.push_back(r.status()); });
    return {[](proto::Continue&) {}};
  });
  Settle();
  EXPECT_EQ(state->calls.size(), 1u);
  caf::anon_send_exit(peer, caf::exit_reason::kill);
  peer = nullptr;
  Settle();
  ASSERT_EQ(state->answers.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(state->answers[0])) << state->answers[0];
  Scheduler().advance_time(std::chrono::seconds(20));
  Settle();
  EXPECT_EQ(state->answers.size(), 1u) << "the timeout of a call that had failed answered again";
}

// A closure that waits for an answer may hold the caller's promise, and so the actor itself.
TEST_F(CallTest, AnOwnerThatEndsLetsGoOfWhatItsCallsHold) {
  auto state = std::make_shared<Caller>();
  auto peer = SpawnSilent();
  auto held = std::make_shared<int>(1);
  auto caller = system_.spawn([state, peer, held](caf::event_based_actor* self) -> caf::behavior {
    self->attach_functor([state] { state->calls.Clear(); });
    Call<proto::InferReply>(
        self, state->calls, peer, std::chrono::seconds(10), proto::CancelInfer(),
        [state, held](absl::StatusOr<proto::InferReply> r) { state->answers.push_back(r.status()); });
    return {[](proto::Continue&) {}};
  });
  Settle();
  const std::weak_ptr<int> watch = std::exchange(held, nullptr);
  EXPECT_FALSE(watch.expired());
  caf::anon_send_exit(caller, caf::exit_reason::user_shutdown);
  Settle();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(state->calls.size(), 0u);
  Scheduler().advance_time(std::chrono::seconds(20));
  Settle();
  EXPECT_TRUE(state->answers.empty());
}

TEST_F(CallTest, ASilentPeerTimesOutUnderVirtualTime) {
  auto state = std::make_shared<Caller>();
  auto peer = SpawnSilent();
  auto caller = system_.spawn([state, peer](caf::event_based_actor* self) -> caf::behavior {
    Call<proto::InferReply>(
        self, state->calls, peer, std::chrono::seconds(10), proto::CancelInfer(),
        [state](absl::StatusOr<proto::InferReply> r) { state->answers.push_back(r.status()); });
    return {[](proto::Continue&) {}};
  });
  Settle();
  Scheduler().advance_time(std::chrono::seconds(9));
  Settle();
  EXPECT_TRUE(state->answers.empty());
  Scheduler().advance_time(std::chrono::seconds(2));
  Settle();
  ASSERT_EQ(state->answers.size(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(state->answers[0])) << state->answers[0];
  EXPECT_EQ(state->calls.size(), 0u);
}

TEST_F(CallTest, TimeoutsFallDueInTheirOrderThoughCallsCameInAnother) {
  auto state = std::make_shared<Caller>();
  auto peer = SpawnSilent();
  std::vector<int> failed;
  auto caller = system_.spawn([&failed, state, peer](caf::event_based_actor* self) -> caf::behavior {
    for (const int after : {30, 10, 20, 10}) {
      Call<proto::InferReply>(self, state->calls, peer, std::chrono::seconds(after), proto::CancelInfer(),
                              [&failed, after](const absl::StatusOr<proto::InferReply>& r) {
                                EXPECT_TRUE(absl::IsDeadlineExceeded(r.status())) << r.status();
                                failed.push_back(after);
                              });
    }
    return {[](proto::Continue&) {}};
  });
  Settle();
  const std::vector<std::vector<int>> expected = {{}, {10, 10}, {10, 10, 20}, {10, 10, 20, 30}};
  Scheduler().advance_time(std::chrono::seconds(5));
  for (const auto& each : expected) {
    Settle();
    EXPECT_EQ(failed, each);
    Scheduler().advance_time(std::chrono::seconds(10));
  }
  EXPECT_EQ(state->calls.size(), 0u);
  EXPECT_EQ(state->calls.timers(), 0u);
}

TEST_F(CallTest, ManyCallsSetOneAlarm) {
  auto state = std::make_shared<Caller>();
  auto echo = system_.spawn(
      []() -> caf::behavior { return {[](proto::CancelInfer&) { return proto::InferReply(); }}; });
  auto caller = system_.spawn([state, echo](caf::event_based_actor* self) -> caf::behavior {
    return {[state, echo, self](proto::Continue&) {
      Call<proto::InferReply>(
          self, state->calls, echo, std::chrono::seconds(10), proto::CancelInfer(),
          [state](absl::StatusOr<proto::InferReply> r) { state->answers.push_back(r.status()); });
    }};
  });
  for (int i = 0; i < 100; ++i) {
    caf::anon_send(caller, proto::Continue());
    Settle();
    Scheduler().advance_time(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(state->answers.size(), 100u);
  EXPECT_EQ(state->calls.size(), 0u);
  EXPECT_EQ(Scheduler().clock().schedule().size(), 1u);
  Scheduler().advance_time(std::chrono::seconds(20));
  Settle();
  EXPECT_EQ(Scheduler().clock().schedule().size(), 0u) << "an alarm was set though nothing is due";
  for (const auto& answer : state->answers) EXPECT_TRUE(answer.ok()) << answer;
}

TEST_F(CallTest, APeerThatIsNotConnectedAnswersUnavailable) {
  auto state = std::make_shared<Caller>();
  system_.spawn([state](caf::event_based_actor* self) -> caf::behavior {
    Call<proto::InferReply>(
        self, state->calls, caf::actor(), std::chrono::seconds(1), proto::CancelInfer(),
        [state](absl::StatusOr<proto::InferReply> r) { state->answers.push_back(r.status()); });
    return {[](proto::Continue&) {}};
  });
  Settle();
  ASSERT_EQ(state->answers.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(state->answers[0]));
}

}  // namespace
}  // namespace troupe::actors
