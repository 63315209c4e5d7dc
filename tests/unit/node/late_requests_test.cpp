// `edf-late-last` at a node: a request that can no longer meet its deadline goes behind those that can, and
// has its own turns.
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::late_requests_test {
namespace {

using std::chrono::milliseconds;

// One GPU that has the model and takes one request at a time; a run is estimated to take 10 ms.
class OneByOne : public SchedulerTest {
 protected:
  explicit OneByOne(const char* ordering = "edf-late-last")
      : SchedulerTest({.swap_ahead = 1}, PoliciesWith(&PolicyNames::ordering, ordering)) {
    Gpus(1);
    Model("m", 10);
    Submit(1, "m");
    running_ = Next();
    Loaded(running_);
  }
  void Ask(std::uint64_t sequence, int deadline_ms, std::uint32_t priority = 0,
           const std::string& function = "m") {
    NodeRequest request;
    request.id = {1, sequence};
    request.model = ModelNamed("m");
    request.function = FunctionNamed(function);
    request.priority = priority;
    request.deadline = Time(milliseconds(deadline_ms));
    ASSERT_TRUE(scheduler.Submit(request, now).accepted);
  }
  // The request that goes when the run that is under way has ended.
  std::uint64_t Then() {
    Ran(running_);
    running_ = Next();
    return running_.request.sequence;
  }
  void At(int ms) { now = Time(milliseconds(ms)); }

 private:
  Dispatch running_;
};

TEST_F(OneByOne, WhatIsLateGoesBehindWhatIsNot) {
  Ask(2, 50);
  Ask(3, 100);
  Ask(4, 45);
  At(42);
  EXPECT_EQ(Then(), 3u);
  EXPECT_EQ(Then(), 4u);  // the request that was late first
  EXPECT_EQ(Then(), 2u);
}

TEST_F(OneByOne, WhatCanStillEndInTimeGoesFirst) {
  Ask(2, 50);
  Ask(3, 100);
  At(30);  // behind another run the request would end at 50
  EXPECT_EQ(Then(), 2u);
}

TEST_F(OneByOne, WhatCameTooLateIsLateFromItsArrival) {
  At(100);
  Ask(2, 80);
  Ask(3, 200);
  EXPECT_EQ(Then(), 3u);
  EXPECT_EQ(Then(), 2u);
}

TEST_F(OneByOne, APriorityStaysBeforeTheNext) {
  Ask(2, 50, 1);
  Ask(3, 100, 2);
  At(90);
  EXPECT_EQ(Then(), 2u);
}

TEST_F(OneByOne, OneOfSixteenIsLate) {
  At(90);
  Ask(2, 50);
  for (std::uint64_t other = 3; other < 40; ++other) Ask(other, 100'000);
  int others = 0;
  while (Then() != 2) ++others;
  EXPECT_EQ(others, 16);
  EXPECT_EQ(Then(), 19u);
}

// Twenty requests of "lost" were late.
class WithBudgets : public OneByOne {
 protected:
  explicit WithBudgets(const char* ordering = "edf-error-budget") : OneByOne(ordering) {
    At(60);
    for (std::uint64_t sequence = 100; sequence < 120; ++sequence) {
      Ask(sequence, 50, 0, "lost");
      EXPECT_EQ(Then(), sequence);
    }
    Ask(120, 100'000);
    EXPECT_EQ(Then(), 120u);
  }
};

TEST_F(WithBudgets, AFunctionThatWillNotMeetItsSloYields) {
  Ask(3, 200, 0, "lost");
  Ask(4, 300);
  EXPECT_EQ(Then(), 4u);
  EXPECT_EQ(Then(), 3u);
}

TEST_F(WithBudgets, ItHasItsTurns) {
  Ask(3, 200, 0, "lost");
  for (std::uint64_t other = 4; other < 40; ++other) Ask(other, 100'000);
  int others = 0;
  while (Then() != 3) ++others;
  EXPECT_EQ(others, 16);
}

TEST_F(WithBudgets, WithoutADeadlineNoFunctionYields) {
  Ask(4, 300);
  NodeRequest request;
  request.id = {1, 3};
  request.function = FunctionNamed("lost");
  request.model = ModelNamed("m");
  ASSERT_TRUE(scheduler.Submit(request, now).accepted);
  Ask(5, 250, 0, "lost");
  EXPECT_EQ(Then(), 4u);
  EXPECT_EQ(Then(), 3u);
  EXPECT_EQ(Then(), 5u);
}

class WithoutBudgets : public WithBudgets {
 protected:
  WithoutBudgets() : WithBudgets("edf-late-last") {}
};

TEST_F(WithoutBudgets, ThereIsNoDifference) {
  Ask(3, 200, 0, "lost");
  Ask(4, 300);
  EXPECT_EQ(Then(), 3u);
}

class ByDeadlineAlone : public OneByOne {
 protected:
  ByDeadlineAlone() : OneByOne("edf") {}
};

TEST_F(ByDeadlineAlone, WhatIsLateStaysFirst) {
  Ask(2, 50);
  Ask(3, 100);
  At(90);
  EXPECT_EQ(Then(), 2u);
}

// Two models on one GPU, which takes a second request beside the one that runs.
class Beside : public SchedulerTest {
 protected:
  Beside() : SchedulerTest({}, PoliciesWith(&PolicyNames::ordering, "edf-late-last")) {
    Gpus(1);
    for (const char* model : {"a", "b"}) {
      Model(model, 10);
      Submit(next_++, model);
      Serve(Next());
    }
    now = Time(milliseconds(100));
    Submit(next_++, "a");
    running_ = Next();
  }
  std::uint64_t next_ = 1;
  Dispatch running_;
};

TEST_F(Beside, WhatIsLateWaitsUntilNothingElseRuns) {
  deadline = Time(milliseconds(50));
  Submit(next_++, "b");
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty());
  deadline = Time(milliseconds(500));
  Submit(next_++, "a");
  EXPECT_EQ(Next().model, "a");  // the second place is for this request
  Ran(running_);
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty());
}

TEST_F(Beside, WhatIsLateHoldsUpNothingOnTheLink) {
  deadline = Time(milliseconds(50));
  Submit(next_++, "b");
  Ran(running_);
  EXPECT_EQ(Next().deadline, Time::max());
  deadline = Time(milliseconds(500));
  Submit(next_++, "a");
  EXPECT_EQ(Next().deadline, deadline - scheduler.costs().RunTime("a")) << "the run has to begin by then";
}

TEST_F(Beside, WhatIsLateHoldsUpNoFunctionOfItsModelThatHasPlacesOfItsOwn) {
  deadline = Time(milliseconds(40));
  Submit(next_++, "a", "noisy");
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty());
  // These are late, too, and behind the one that waits.
  deadline = Time(milliseconds(50));
  own_places = true;
  sm_percent = 24;
  most_on_gpu = 2;
  const std::uint64_t first = next_;
  for (int i = 0; i < 3; ++i) Submit(next_++, "a", "quota");
  const auto dispatches = Decide();
  ASSERT_EQ(dispatches.size(), 2u) << "as many as the function may have on the GPU";
  EXPECT_EQ(dispatches[0].request.sequence, first);
  EXPECT_EQ(dispatches[1].request.sequence, first + 1);
  scheduler.Check();
}

}  // namespace
}  // namespace troupe::node::late_requests_test
