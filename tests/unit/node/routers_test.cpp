// What a node tells its routers: how many requests they may send, and what work others have given it.
#include <optional>
#include <variant>

#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::routers_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

// Routers 7 and 8 said hello to a node of two GPUs, on one of which the model of "f" was run once, in 200 ms.
class WorkReports : public NodeTest {
 protected:
  WorkReports() {
    Up(0);
    Up(1);
    Hello(7);
    Hello(8);
    Adopt("f");
    for (const GpuIndex gpu : {0, 1}) Answered(gpu, "prepare");
    Submit(100, "f");
    Answered(0, "swap-in");
    for (Ask ask = 100; ask < 102; ++ask) {  // the first run has waited for its model
      now += milliseconds(200);
      proto::WorkerOutcome run;
      run.set_end_ns(Duration(milliseconds(200)).count());
      EXPECT_THAT(Answered(0, "run", std::move(run)), testing::Contains(absl::StrCat("answer ", ask, " OK")));
      if (ask == 100) Submit(101, "f");
    }
    Tick();
    Tick();
  }
  // The routers have been told what was due. What each was told last stands in others_.
  void Tick() {
    now += Settings(1).work_every;
    for (const auto& effect : Raw(TimerFired{Timer::kWork})) {
      const auto* told = std::get_if<TellRouter>(&effect);
      if (told != nullptr) others_[told->router] = Duration(told->grant.others_ns());
      if (told != nullptr) {
        EXPECT_EQ(told->grant.fit_gpus(), 2u);
      }
    }
  }
  std::map<std::uint64_t, Duration> others_;
};

TEST_F(WorkReports, ARouterLearnsOfTheWorkOfOthersAndOfItsEnd) {
  others_.clear();
  Submit(2, "f");
  Tick();
  ASSERT_TRUE(others_.contains(8));
  EXPECT_NEAR(ToSeconds(others_[8]), 0.2, 0.05) << "a run that is under way";
  EXPECT_FALSE(others_.contains(7)) << "nothing has changed for the router that has sent it";
  others_.clear();
  Tick();
  EXPECT_THAT(others_, IsEmpty()) << "it knows already";
  Answered(0, "run");
  Tick();
  EXPECT_THAT(others_, ElementsAre(std::pair(8, Duration())));
}

TEST_F(WorkReports, RequestsThatWaitCountToo) {
  for (Ask ask = 2; ask < 6; ++ask) Submit(ask, "f");
  Tick();
  EXPECT_NEAR(ToSeconds(others_[8]), 0.8, 0.2);
}

TEST_F(WorkReports, TheWorkOfARouterThatIsLostIsNoOthersAnyMore) {
  Submit(2, "f");
  Tick();
  On(RouterLost{7});
  Answered(0, "run");
  Tick();
  EXPECT_EQ(others_[8], Duration());
}

// A hello comes four times a second, and the models of a node are thousands.
TEST_F(WorkReports, AHelloOfARouterThatKnowsTheLastGrantBringsNoListAgain) {
  const auto answer = [&](std::uint64_t epoch, std::uint64_t grant) {
    proto::RouterHello hello;
    hello.set_router(7);
    hello.set_known_epoch(epoch);
    hello.set_known_grant(grant);
    proto::CreditGrant told;
    for (const auto& effect : Raw(RouterSaidHello{9, hello}))
      if (const auto* given = std::get_if<Answer<proto::CreditGrant>>(&effect)) told = given->reply;
    return told;
  };
  const auto whole = answer(0, 0);
  EXPECT_EQ(whole.adopted().digests_size(), 1);
  const auto again = answer(whole.node_epoch(), whole.number());
  EXPECT_FALSE(again.has_adopted());
  EXPECT_FALSE(again.has_resident());
  EXPECT_EQ(again.limit(), whole.limit());
  EXPECT_TRUE(answer(again.node_epoch(), whole.number()).has_adopted()) << "a grant was lost";
  const auto last = answer(0, 0);
  EXPECT_TRUE(answer(last.node_epoch() + 1, last.number()).has_adopted()) << "it is of another life";
}

class Credits : public NodeTest {
 protected:
  std::uint64_t LimitOf(std::uint64_t router) {
    proto::RouterHello hello;
    hello.set_router(router);
    for (const auto& effect : Raw(RouterSaidHello{9, hello}))
      if (const auto* given = std::get_if<Answer<proto::CreditGrant>>(&effect)) return given->reply.limit();
    return 0;
  }
};

// Requests that were given to it would wait, although another node may have a place for them.
TEST_F(Credits, AGpuGrantsNoneUntilAWorkerHasComeUpOrWhenNoneDoes) {
  EXPECT_EQ(LimitOf(7), 0u);
  Up(0);
  const auto of_one = LimitOf(7);
  EXPECT_GT(of_one, 0u);
  Up(1);
  EXPECT_EQ(LimitOf(7), 2 * of_one);
  Report(1, proto::ExecutorReport::DOWN);
  Report(1, proto::ExecutorReport::STARTING);
  EXPECT_EQ(LimitOf(7), 2 * of_one) << "the next worker is there soon";
  Report(1, proto::ExecutorReport::UNFIT);
  EXPECT_EQ(LimitOf(7), of_one);
  Report(1, proto::ExecutorReport::READY);
  EXPECT_EQ(LimitOf(7), 2 * of_one) << "it has come up all the same";
}

}  // namespace
}  // namespace troupe::node::routers_test
