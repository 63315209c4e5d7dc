// Models that come ahead of a foreseen request: which requests are foreseen, when the models come, and which
// models they replace.
#include <utility>

#include "base/random.hpp"
#include "node/scheduling/arrival_forecast.hpp"
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::foreseen_prefetch_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ArrivalForecast, TrustsAnIntervalThatCameTrueThreeTimes) {
  ArrivalForecast forecast;
  EXPECT_EQ(forecast.Due(), Time::max());
  for (int i = 0; i <= 4; ++i) {
    EXPECT_EQ(forecast.Due(), Time::max()) << i;
    forecast.Arrived(Time(seconds(10 * i)) + milliseconds(i % 2 * 300));
  }
  EXPECT_EQ(forecast.Due(), Time(seconds(50)) - milliseconds(300));
  EXPECT_GT(forecast.Grace(), milliseconds(300));
}

TEST(ArrivalForecast, LosesTrustInWhatDoesNotComeTrue) {
  ArrivalForecast forecast;
  for (int i = 0; i <= 10; ++i) forecast.Arrived(Time(seconds(10 * i)));
  EXPECT_NE(forecast.Due(), Time::max());
  forecast.Arrived(Time(seconds(115)));
  forecast.Arrived(Time(seconds(117)));
  EXPECT_EQ(forecast.Due(), Time::max());
}

TEST(ArrivalForecast, TrustsHardlyAnyOfWhatComesAsItPleases) {
  Random random(7);
  ArrivalForecast forecast;
  Time now{};
  int trusted = 0;
  for (int i = 0; i < 10'000; ++i) {
    now += FromSeconds(random.Exponential(1));
    forecast.Arrived(now);
    trusted += forecast.Due() != Time::max() ? 1 : 0;
  }
  EXPECT_LT(trusted, 100);
}

// One GPU of 100 MiB, which loads beneath runs: a model of 60 MiB gets a request from a timer every ten
// seconds, with 100 ms to its deadline, and others get requests in between and take its place.
class Foreseen : public SchedulerTest {
 protected:
  explicit Foreseen(const char* copies = "forecast", SchedulerLimits limits = {.swap_ahead = 2})
      : SchedulerTest(limits, PoliciesWith(&PolicyNames::prefetch, copies), "none") {
    Gpus(1);
    Model("timer", 60);
    Model("other", 60);
    Model("small", 30);
    Model("third", 30);
  }
  void Ask(const char* model) {
    deadline = now + milliseconds(100);
    Submit(next_++, model);
    deadline = Time::max();
    const auto dispatches = Decide();
    ASSERT_EQ(dispatches.size(), 1u);
    const Dispatch& to = dispatches[0];
    came_for_it_ = to.source == SwapSource::kHost;
    Loaded(to);
    scheduler.Apply(RunDone{.gpu = to.gpu, .request = to.request, .took = milliseconds(2)}, now);
    Take();
  }
  void Take() {
    EXPECT_TRUE(Decide().empty());
    copies_ = std::exchange(prefetches, {});
    scheduler.Check();
  }
  // The timer's requests, and behind each one a request for another model, which comes at random and takes
  // its place.
  void Learn() {
    for (int i = 0; i <= 5; ++i) {
      if (i > 0) now = due_;
      due_ = now + seconds(10);
      Ask("timer");
      now += seconds(2 + i % 2 * 2);
      Ask("other");
    }
  }

  std::vector<Dispatch> copies_;
  bool came_for_it_ = false;
  Time due_{};
  std::uint64_t next_ = 1;
};

TEST_F(Foreseen, ItComesBeforeItIsAskedFor) {
  Learn();
  EXPECT_TRUE(copies_.empty());
  const Time look = scheduler.NextDue();
  EXPECT_LT(look, due_);
  EXPECT_GT(look, due_ - seconds(1));
  now = look;
  Take();
  ASSERT_EQ(copies_.size(), 1u);
  EXPECT_EQ(copies_[0].model, "timer");
  EXPECT_THAT(copies_[0].victims, testing::ElementsAre("other"));
  // The prefetch is as urgent as the request to come, which has 100 ms and runs for 2.
  EXPECT_EQ(copies_[0].deadline, due_ + milliseconds(98));
  Loaded(copies_[0]);
  now = due_;
  Ask("timer");
  EXPECT_FALSE(came_for_it_);
}

// The model came, and beside it is a smaller one with many more requests: which of them does a third one
// replace?
class Came : public Foreseen {
 protected:
  void AskForAThird(Duration after_due) {
    Learn();
    now = scheduler.NextDue();
    Take();
    ASSERT_EQ(copies_.size(), 1u);
    ASSERT_EQ(copies_[0].model, "timer");
    Loaded(copies_[0]);
    for (int i = 0; i < 3; ++i) {
      now += milliseconds(3);
      Ask("small");
    }
    now = due_ + after_due;
    Ask("third");
  }
};
TEST_F(Came, ItIsKeptForItsRequest) {
  AskForAThird(-milliseconds(1));
  EXPECT_NE(scheduler.FindResident(0, ModelNamed("timer")), nullptr);
  EXPECT_EQ(scheduler.FindResident(0, ModelNamed("small")), nullptr);
}
TEST_F(Came, ItGoesWhenItsRequestDidNotCome) {
  AskForAThird(seconds(1));
  EXPECT_EQ(scheduler.FindResident(0, ModelNamed("timer")), nullptr);
  EXPECT_NE(scheduler.FindResident(0, ModelNamed("small")), nullptr);
  now = due_ + seconds(5);
  Take();
  EXPECT_TRUE(copies_.empty());  // the model does not come back either
}

TEST_F(Foreseen, AModelWithRequestsIsNotEvictedForIt) {
  Learn();
  Ask("small");
  now = scheduler.NextDue() - milliseconds(1);
  Submit(next_++, "small");
  Submit(next_++, "small");
  Submit(next_++, "other");
  for (const auto& run : Decide()) EXPECT_EQ(run.model, "small");
  EXPECT_EQ(scheduler.waiting(), 1u);  // there is no place for another run
  now += milliseconds(2);
  Take();
  EXPECT_TRUE(copies_.empty());
}

TEST_F(Foreseen, TwoDoNotTakeEachOthersPlace) {
  Model("second", 60);
  const Time round = now;
  for (int i = 0; i <= 5; ++i) {
    now = round + seconds(10 * i);
    Ask("timer");
    now += milliseconds(100);
    Ask("second");
  }
  due_ = round + seconds(60);
  now = scheduler.NextDue();
  Take();
  ASSERT_EQ(copies_.size(), 1u);
  EXPECT_EQ(copies_[0].model, "timer");
  Loaded(copies_[0]);
  now = due_ + milliseconds(90);  // the request may still come
  Take();
  EXPECT_TRUE(copies_.empty());
}

TEST_F(Foreseen, WhatWasDueDoesNotComeLater) {
  Learn();
  now = due_ + milliseconds(1);
  Take();
  EXPECT_TRUE(copies_.empty());
}

TEST_F(Foreseen, WhatRanWhenItsWorkerDiedIsNotForeseen) {
  Learn();
  now = due_;
  Submit(next_++, "timer");
  ASSERT_EQ(Decide().size(), 1u);
  scheduler.Apply(WorkerLost{.gpu = 0, .why = "killed"}, now);
  Ready(0);
  const auto again = Decide();
  ASSERT_EQ(again.size(), 1u);
  Serve(again[0]);
  now += seconds(2);
  Ask("other");
  now = due_ + seconds(10) - milliseconds(1);
  Take();
  EXPECT_TRUE(copies_.empty());
}

TEST_F(Foreseen, WhatCouldNotComeIsNotForeseen) {
  Learn();
  now = scheduler.NextDue();
  Take();
  ASSERT_EQ(copies_.size(), 1u);
  Loaded(copies_[0], absl::DataLossError("its bytes are wrong"));
  now = due_;
  Ask("timer");
  now += seconds(2);
  Ask("other");
  now = due_ + seconds(10) - milliseconds(1);
  Take();
  EXPECT_TRUE(copies_.empty());
}

TEST_F(Foreseen, AModelThatWasRemovedIsNotForeseen) {
  Learn();
  static_cast<void>(scheduler.ForgetModel(ModelNamed("timer")));
  now = due_;
  Take();
  EXPECT_TRUE(copies_.empty());
}

class OnlyAhead : public Foreseen {
 protected:
  OnlyAhead() : Foreseen("ahead") {}
};
TEST_F(OnlyAhead, ForeseesNothing) {
  Learn();
  now = due_ - milliseconds(10);
  Take();
  EXPECT_TRUE(copies_.empty());
}

class WhereModelsPass : public Foreseen {
 protected:
  WhereModelsPass() : Foreseen("forecast", {.swap_ahead = 2, .by_layer = ByLayer::kIdle}) {}
};
TEST_F(WhereModelsPass, AModelThatWouldPassThroughEvictsNoneBeforeItsRequest) {
  Ask("other");
  Learn();
  EXPECT_EQ(scheduler.counts().by_layer, 6u);
  now = due_ - milliseconds(10);
  Take();
  EXPECT_TRUE(copies_.empty());
  EXPECT_NE(scheduler.FindResident(0, ModelNamed("other")), nullptr);
}

// The model has so many requests that the next one is foreseen while this one runs, in the last free memory.
TEST_F(WhereModelsPass, AModelThatPassesThroughEvictsNoneMeanwhile) {
  Model("big", 80);
  Ask("big");
  for (int i = 0; i <= 5; ++i, now = due_) {
    due_ = now + milliseconds(40);
    Ask("timer");
    now += milliseconds(15 + i % 2 * 10);  // at irregular times
    Ask("big");
  }
  Submit(next_++, "timer");
  const auto dispatches = Decide();
  ASSERT_EQ(dispatches.size(), 1u);
  EXPECT_EQ(dispatches[0].source, SwapSource::kLayers);
  now += milliseconds(1);
  Take();
  EXPECT_TRUE(copies_.empty());
}

class WhereLoadsOccupy : public Foreseen {
 protected:
  WhereLoadsOccupy() : Foreseen("forecast", {.swap_ahead = 1}) {}
};
TEST_F(WhereLoadsOccupy, NothingIsForeseen) {
  Learn();
  now = due_ - milliseconds(10);
  Take();
  EXPECT_TRUE(copies_.empty());
}

}  // namespace
}  // namespace troupe::node::foreseen_prefetch_test
