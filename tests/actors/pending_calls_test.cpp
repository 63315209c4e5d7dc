#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include "actors/core/call.hpp"
#include "actors/core/message_types.hpp"
#include "actors/core/time.hpp"
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
  // An actor that never answers: a promise that is dropped is silent in this CAF.
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
