#include "gpu/swap/model_load.hpp"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);
constexpr Duration kMoment = std::chrono::milliseconds(1);

Time At(int seconds) {
  return Time(std::chrono::seconds(seconds));
}

TEST(ModelLoad, WhatIsThereNeedsNoEvent) {
  const auto load = std::make_shared<ModelLoad>(CutEvenly(Bytes(30), Bytes(10)));
  EXPECT_EQ(load->After(0), nullptr);
  const EventPtr first = load->After(1);
  ASSERT_NE(first, nullptr);
  EXPECT_FALSE(first->done());
  EXPECT_EQ(first->Wait(kMoment).code(), absl::StatusCode::kDeadlineExceeded);
  load->Arrived(At(5));
  EXPECT_TRUE(first->done());
  EXPECT_TRUE(first->status().ok());
  EXPECT_EQ(load->After(1), nullptr);
  EXPECT_NE(load->After(2), nullptr);
  load->Arrived(At(6));
  load->Arrived(At(7));
  EXPECT_TRUE(load->complete());
  EXPECT_EQ(load->ArrivalOf(1), At(5));
  EXPECT_EQ(load->ArrivalOf(3), At(7));
  EXPECT_EQ(load->ArrivalOf(0), Time());
}

TEST(ModelLoad, ExpectsItsEndByWhatHasArrived) {
  ModelLoad load(CutEvenly(Bytes(35), Bytes(10)));
  EXPECT_EQ(load.ExpectedEnd(), Time::max());
  load.Arrived(At(10));
  EXPECT_EQ(load.ExpectedEnd(), Time::max());  // the time of the first group is not known
  load.Arrived(At(14));
  EXPECT_EQ(load.ExpectedEnd(), At(20));  // 15 bytes are left, and 10 took 4 s
  load.Arrived(At(15));
  EXPECT_EQ(load.ExpectedEnd(), At(15) + std::chrono::milliseconds(1250));
  load.Arrived(At(16));
  EXPECT_EQ(load.ExpectedEnd(), At(16));
}

TEST(ModelLoad, AFailureEndsTheWaitingForWhatWillNotCome) {
  const auto load = std::make_shared<ModelLoad>(CutEvenly(Bytes(30), Bytes(10)));
  const EventPtr first = load->After(1);
  const EventPtr last = load->After(3);
  load->Arrived(At(1));
  load->Failed(absl::DataLossError("gone"));
  load->Failed(absl::InternalError("again"));
  EXPECT_TRUE(first->status().ok()) << "the weights were there before";
  EXPECT_EQ(last->Wait(kPatience).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(load->After(1), nullptr);
  EXPECT_EQ(load->After(2)->Wait(kPatience).code(), absl::StatusCode::kDataLoss);
}

class FakeSignals final : public Signals {
 public:
  [[nodiscard]] std::size_t count() const override { return 2; }
  void Release() override { ++released; }
  int released = 0;
};

// The host brings one group of four before the device takes over, and the copy of the last is not ordered at first.
TEST(ModelLoad, GroupsWhoseCopiesAreOrderedHaveSignals) {
  const auto load = std::make_shared<ModelLoad>(CutEvenly(Bytes(40), Bytes(10)));
  const auto signals = std::make_shared<FakeSignals>();
  const EventPtr before = load->After(2);
  EXPECT_EQ(before->signals().of, nullptr) << "only the host knows";
  load->Arrived(At(1));
  load->RaisedByDevice(signals, 1, 3);
  EXPECT_EQ(before->signals().of, signals);
  EXPECT_EQ(before->signals().count, 1u);
  EXPECT_EQ(load->After(3)->signals().count, 2u);
  EXPECT_EQ(load->After(4)->signals().of, nullptr);
  load->RaisedByDevice(signals, 1, 4);
  EXPECT_EQ(load->After(4)->signals().count, 3u);
  EXPECT_FALSE(before->done()) << "the host hears of it by itself";
  load->Failed(absl::DataLossError("gone"));
  EXPECT_EQ(signals->released, 1);
  load->Failed(absl::DataLossError("again"));
  EXPECT_EQ(signals->released, 1);
}

TEST(ModelLoad, WhatIsCompleteReleasesNothing) {
  const auto load = std::make_shared<ModelLoad>(CutEvenly(Bytes(10), Bytes(10)));
  const auto signals = std::make_shared<FakeSignals>();
  load->RaisedByDevice(signals, 0, 1);
  load->Arrived(At(1));
  load->Failed(absl::DataLossError("too late"));
  EXPECT_EQ(signals->released, 0);
}

TEST(ModelLoad, SignalsOfALoadThatHasFailedAreReleasedAtOnce) {
  const auto load = std::make_shared<ModelLoad>(CutEvenly(Bytes(10), Bytes(10)));
  load->Failed(absl::DataLossError("gone"));
  const auto signals = std::make_shared<FakeSignals>();
  load->RaisedByDevice(signals, 0, 1);
  EXPECT_EQ(signals->released, 1);
}

TEST(ModelLoad, WaitersOnOtherThreadsWake) {
  const auto load = std::make_shared<ModelLoad>(CutEvenly(Bytes(1000), Bytes(1)));
  std::vector<std::jthread> waiters;
  for (std::size_t count : {1u, 500u, 1000u}) {
    waiters.emplace_back([load, count] {
      if (const EventPtr event = load->After(count)) {
        EXPECT_TRUE(event->Wait(kPatience).ok());
      }
      EXPECT_GE(load->arrived(), count);
    });
  }
  for (int i = 0; i < 1000; ++i) load->Arrived(At(i));
}

}  // namespace
}  // namespace troupe::gpu
