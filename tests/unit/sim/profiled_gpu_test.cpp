#include "sim/profiled_gpu.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/policy.hpp"
#include "gpu/memory/memory_policy.hpp"

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A clock that moves from one timer to the next.
class Clock {
 public:
  actors::FakeGpu::Timer Timer() {
    return [this](Time at, std::function<void()> then) { due_.emplace(at, std::move(then)); };
  }
  void RunAll() {
    while (!due_.empty()) {
      auto first = due_.extract(due_.begin());
      now = first.key();
      first.mapped()();
    }
  }
  Time now{};

 private:
  std::multimap<Time, std::function<void()>> due_;
};

class ProfiledGpu : public testing::Test {
 protected:
  std::unique_ptr<actors::FakeGpu> Gpu(LoadMode mode) {
    return MakeProfiledGpu({.mode = mode, .link = {1e9}, .peer_link = {}, .speed = 1, .on_bring = {}},
                           models_, link_, use_, clock_.Timer());
  }
  actors::FakeGpu::Loaded Loaded(const std::string& what) {
    return [this, what](Time) { ends_[what] = clock_.now.time_since_epoch(); };
  }
  actors::FakeGpu::Ran Ran(const std::string& what) {
    return [this, what](Time, Time last_weights) {
      ends_[what] = clock_.now.time_since_epoch();
      waited_[what] = last_weights != Time{};
    };
  }

  Clock clock_;
  std::shared_ptr<ModelCatalogue> models_ = std::make_shared<ModelCatalogue>(
      ModelCatalogue{{"big", {.run = milliseconds(100), .load = {}, .swapped = milliseconds(1020)}},
                     {"measured", {.run = seconds(1), .load = seconds(3), .swapped = {}}}});
  std::shared_ptr<HostLink> link_ = std::make_shared<HostLink>();
  std::shared_ptr<GpuUse> use_ = std::make_shared<GpuUse>();
  std::map<std::string, Duration> ends_;
  std::map<std::string, bool> waited_;
};

TEST_F(ProfiledGpu, AllocationsComeBeforeLoadsAndRuns) {
  const AllocationTimes allocation{.load = milliseconds(7), .run = milliseconds(2)};
  for (const LoadMode mode : {LoadMode::kAtomic, LoadMode::kPipelined}) {
    const auto gpu = MakeProfiledGpu(
        {.mode = mode, .link = {1e9}, .peer_link = {}, .speed = 1, .allocation = allocation, .on_bring = {}},
        models_, link_, use_, clock_.Timer());
    const Duration begin = clock_.now.time_since_epoch();
    gpu->Bring({"big", Bytes(1'000'000'000), {}}, clock_.now, Loaded("load"));
    gpu->Run("big", std::nullopt, clock_.now, Ran("swapped"));
    clock_.RunAll();
    EXPECT_EQ(ends_["load"] - begin, milliseconds(1007));
    EXPECT_EQ(ends_["swapped"] - begin, milliseconds(mode == LoadMode::kAtomic ? 1109 : 1029));
    gpu->Run("big", std::nullopt, clock_.now, Ran("run"));
    clock_.RunAll();
    EXPECT_EQ(ends_["run"] - ends_["swapped"], milliseconds(102));
  }
}

TEST(Allocation, TakesTimeWhereTheDeviceIsAsked) {
  for (const auto& policy : gpu::MemoryPolicies())
    EXPECT_EQ(AllocationTimesOf(policy.name).run > Duration(),
              policy.policy.source != gpu::MemoryPolicy::Source::kPartitions)
        << policy.name;
  EXPECT_EQ(FindPreset("torpor-block")->memory, "block-cache");
}

TEST_F(ProfiledGpu, AnAtomicLoadOccupiesTheGpu) {
  const auto gpu = Gpu(LoadMode::kAtomic);
  gpu->Run("big", std::nullopt, Time{}, Ran("first"));
  gpu->Bring({"measured", Bytes(5), {}}, Time{}, Loaded("load"));
  gpu->Run("big", std::nullopt, Time{}, Ran("between"));
  gpu->Run("measured", std::nullopt, Time{}, Ran("last"));
  clock_.RunAll();
  EXPECT_EQ(ends_["first"], milliseconds(100));
  EXPECT_EQ(ends_["load"], milliseconds(3100));
  EXPECT_EQ(ends_["between"], milliseconds(3200));
  EXPECT_EQ(ends_["last"], milliseconds(4200));
  EXPECT_EQ(use_->loading, seconds(3));
  EXPECT_EQ(use_->computing, milliseconds(1200));
}

TEST_F(ProfiledGpu, AnOverlappedLoadGoesOnBesideRuns) {
  const auto gpu = Gpu(LoadMode::kOverlapped);
  gpu->Bring({"measured", Bytes(5), {}}, Time{}, Loaded("load"));
  gpu->Run("big", std::nullopt, Time{}, Ran("other"));
  gpu->Run("measured", std::nullopt, Time{}, Ran("own"));
  clock_.RunAll();
  EXPECT_EQ(ends_["other"], milliseconds(100));
  EXPECT_EQ(ends_["load"], seconds(3));
  EXPECT_EQ(ends_["own"], seconds(4));
  EXPECT_FALSE(waited_["own"]);
}

TEST_F(ProfiledGpu, APipelinedRunBeginsWithItsFirstWeights) {
  const auto gpu = Gpu(LoadMode::kPipelined);
  gpu->Bring({"big", Bytes(1'000'000'000), {}}, Time{}, Loaded("load"));
  gpu->Run("big", std::nullopt, Time{}, Ran("run"));
  clock_.RunAll();
  EXPECT_EQ(ends_["load"], seconds(1));
  EXPECT_EQ(ends_["run"], milliseconds(1020));
  EXPECT_TRUE(waited_["run"]);
}

TEST_F(ProfiledGpu, ARunThatBeginsInMidLoadWaitsForTheRestOnly) {
  (*models_)["other"] = {.run = milliseconds(950), .load = {}, .swapped = {}};
  const auto gpu = Gpu(LoadMode::kPipelined);
  gpu->Run("other", std::nullopt, Time{}, Ran("other"));
  gpu->Bring({"big", Bytes(1'000'000'000), {}}, Time{}, Loaded("load"));
  gpu->Run("big", std::nullopt, Time{}, Ran("run"));
  clock_.RunAll();
  EXPECT_EQ(ends_["load"], seconds(1));
  EXPECT_EQ(ends_["run"], milliseconds(950 + 100 + 20));
  EXPECT_TRUE(waited_["run"]);
}

TEST_F(ProfiledGpu, GpusBehindOneSwitchShareItsLink) {
  const auto a = Gpu(LoadMode::kPipelined);
  auto b = Gpu(LoadMode::kPipelined);
  const auto dies = Gpu(LoadMode::kPipelined);
  a->Bring({"big", Bytes(1'000'000'000), {}}, Time{}, Loaded("a"));
  a->Run("big", std::nullopt, Time{}, Ran("a runs"));
  b->Bring({"big", Bytes(500'000'000), {}}, Time{}, Loaded("b"));
  clock_.RunAll();
  // Each transfer has half of the rate until b ends after 1 s; the other half of a's gigabyte takes 0.5 s.
  EXPECT_EQ(ends_["b"], seconds(1));
  EXPECT_EQ(ends_["a"], milliseconds(1500));
  EXPECT_EQ(ends_["a runs"], milliseconds(1520));
  EXPECT_EQ(link_->busy(), milliseconds(1500));
  // A worker that dies leaves the link to the other workers.
  a->Bring({"big", Bytes(1'000'000), {}}, clock_.now, Loaded("again"));
  b->Bring({"big", Bytes(1'000'000'000), {}}, clock_.now, Loaded("never"));
  b.reset();
  EXPECT_EQ(link_->on_the_way(), 1u);
}

TEST_F(ProfiledGpu, TheMostUrgentTransferHasTheLink) {
  link_ = std::make_shared<HostLink>(gpu::LinkSharing::kDeadline);
  const auto a = Gpu(LoadMode::kPipelined);
  auto b = Gpu(LoadMode::kPipelined);
  const auto c = Gpu(LoadMode::kPipelined);
  const auto in = [](Duration span) { return Time(span); };
  a->Bring({"big", Bytes(1'000'000'000), {}, {}}, Time{}, Loaded("without urgency"));
  b->Bring({"big", Bytes(500'000'000), {}, in(seconds(1))}, Time{}, Loaded("urgent"));
  c->Bring({"big", Bytes(100'000'000), {}, in(seconds(1))}, Time{}, Loaded("as urgent"));
  clock_.RunAll();
  EXPECT_EQ(ends_["as urgent"], milliseconds(200)) << "equally urgent transfers share the link evenly";
  EXPECT_EQ(ends_["urgent"], milliseconds(600));
  EXPECT_EQ(ends_["without urgency"], milliseconds(1600));
  // A transfer with an earlier deadline goes before one that has begun.
  const auto now = clock_.now;
  a->Bring({"big", Bytes(1'000'000'000), {}, now + seconds(5)}, now, Loaded("begun"));
  b->Bring({"big", Bytes(500'000'000), {}, now + seconds(1)}, now, Loaded("before"));
  clock_.RunAll();
  EXPECT_EQ(ends_["before"], now.time_since_epoch() + milliseconds(500));
  EXPECT_EQ(ends_["begun"], now.time_since_epoch() + milliseconds(1500));
  // The worker whose transfer has the link dies: the transfers of the others go on.
  a->Bring({"big", Bytes(1'000'000), {}, clock_.now + seconds(5)}, clock_.now, Loaded("left"));
  b->Bring({"big", Bytes(1'000'000), {}, clock_.now + seconds(1)}, clock_.now, Loaded("never"));
  b.reset();
  clock_.RunAll();
  EXPECT_EQ(link_->on_the_way(), 0u);
  EXPECT_GT(ends_["left"], ends_["begun"]);
}

TEST_F(ProfiledGpu, OfTheLoadsThatWaitTheMostUrgentComesFirst) {
  const auto gpu = MakeProfiledGpu({.mode = LoadMode::kPipelined,
                                    .link = {1e9},
                                    .peer_link = {},
                                    .speed = 1,
                                    .loads = Turns::kDeadline,
                                    .on_bring = {}},
                                   models_, link_, use_, clock_.Timer());
  (*models_)["small"] = (*models_)["other"] = {.run = milliseconds(1), .load = {}, .swapped = {}};
  gpu->Bring({"big", Bytes(1'000'000'000), {}, {}}, Time{}, Loaded("first"));
  gpu->Bring({"other", Bytes(100'000'000), {}, Time(seconds(9))}, Time{}, Loaded("later"));
  gpu->Bring({"small", Bytes(100'000'000), {}, Time(seconds(2))}, Time{}, Loaded("sooner"));
  clock_.RunAll();
  EXPECT_EQ(ends_["first"], seconds(1)) << "a transfer that has begun goes to its end";
  EXPECT_EQ(ends_["sooner"], milliseconds(1100));
  EXPECT_EQ(ends_["later"], milliseconds(1200));
}

TEST_F(ProfiledGpu, OfTheRunsThatCouldComputeTheMostUrgentIsNext) {
  (*models_)["other"] = (*models_)["third"] = (*models_)["big"];
  const auto run_all = [&](Turns runs) {
    clock_.now = Time{};
    const auto gpu = MakeProfiledGpu({.mode = LoadMode::kPipelined,
                                      .link = {1e9},
                                      .peer_link = {},
                                      .speed = 1,
                                      .runs = runs,
                                      .on_bring = {}},
                                     models_, link_, use_, clock_.Timer());
    gpu->Run("big", Time(seconds(9)), Time{}, Ran("first"));
    gpu->Run("other", std::nullopt, Time{}, Ran("unhurried"));
    gpu->Run("third", Time(milliseconds(300)), Time{}, Ran("urgent"));
    clock_.RunAll();
  };
  run_all(Turns::kDeadline);
  EXPECT_EQ(ends_["first"], milliseconds(100)) << "a run that has begun goes on";
  EXPECT_EQ(ends_["urgent"], milliseconds(200));
  EXPECT_EQ(ends_["unhurried"], milliseconds(300));
  run_all(Turns::kArrival);
  EXPECT_EQ(ends_["unhurried"], milliseconds(200)) << "without deadlines runs go in the order of arrival";
}

// Two cold starts beside each other and beneath a run; runs take turns.
// Deadlines order runs: a run of 100 ms that has its weights, and the time by which it has to begin, beside
// one of 20 ms whose weights come within 40.
class LaunchOrderOfAGpu : public ProfiledGpu {
 protected:
  void RunBoth(Duration here_by, Duration coming_by, LoadMode mode = LoadMode::kPipelined) {
    (*models_)["coming"] = {.run = milliseconds(20), .load = {}, .swapped = {}};
    const auto gpu = MakeProfiledGpu(
        {.mode = mode, .link = {1e9}, .peer_link = {}, .speed = 1, .runs = Turns::kDeadline, .on_bring = {}},
        models_, link_, use_, clock_.Timer());
    gpu->Bring({"coming", Bytes(40'000'000), {}}, Time{}, Loaded("load"));
    // Both runs come while a third one computes for 10 ms.
    (*models_)["first"] = {.run = milliseconds(10), .load = {}, .swapped = {}};
    gpu->Run("first", Time{}, Time{}, Ran("first"));
    gpu->Run("big", Time(here_by), Time{}, Ran("here"));
    gpu->Run("coming", Time(coming_by), Time{}, Ran("coming"));
    clock_.RunAll();
  }
};
TEST_F(LaunchOrderOfAGpu, WhatHasItsWeightsGoesFirst) {
  RunBoth(milliseconds(300), milliseconds(110));  // the other run is in time behind this one
  EXPECT_EQ(ends_["here"], milliseconds(110));
  EXPECT_EQ(ends_["coming"], milliseconds(130));
}
TEST_F(LaunchOrderOfAGpu, UnlessTheOtherOneWouldBeLateForIt) {
  RunBoth(milliseconds(300), milliseconds(109));
  EXPECT_EQ(ends_["coming"], milliseconds(40));
  EXPECT_EQ(ends_["here"], milliseconds(140));
}
TEST_F(LaunchOrderOfAGpu, UnlessItWouldBeLateItself) {
  RunBoth(milliseconds(39), milliseconds(20));
  EXPECT_EQ(ends_["here"], milliseconds(110));
}
TEST_F(LaunchOrderOfAGpu, WhatIsLateYields) {
  RunBoth(milliseconds(300), milliseconds(9));
  EXPECT_EQ(ends_["here"], milliseconds(110));
  EXPECT_EQ(ends_["coming"], milliseconds(130));
}
TEST_F(LaunchOrderOfAGpu, NoRunBeginsInMidLoadWhereLoadsAreNotPipelined) {
  RunBoth(milliseconds(300), milliseconds(109), LoadMode::kOverlapped);
  EXPECT_EQ(ends_["here"], milliseconds(110));
}

TEST_F(ProfiledGpu, RuntimesStartBesideEachOther) {
  const auto gpu = Gpu(LoadMode::kRuntimes);
  (*models_)["other"] = {.run = milliseconds(500), .load = seconds(3), .swapped = {}};
  gpu->Bring({.digest = "measured"}, Time{}, Loaded("measured"));
  gpu->Bring({.digest = "other"}, Time{}, Loaded("other"));
  gpu->Run("measured", std::nullopt, Time{}, Ran("run measured"));
  gpu->Run("big", std::nullopt, Time{}, Ran("run big"));
  gpu->Run("other", std::nullopt, Time{}, Ran("run other"));
  clock_.RunAll();
  EXPECT_EQ(ends_["measured"], seconds(3));
  EXPECT_EQ(ends_["other"], seconds(3));
  EXPECT_EQ(ends_["run big"], milliseconds(100));  // this run does not wait for the start of another function
  EXPECT_EQ(ends_["run measured"], seconds(4));
  EXPECT_EQ(ends_["run other"], milliseconds(4500));
  EXPECT_EQ(use_->computing, milliseconds(1600));
}

TEST_F(ProfiledGpu, ASlowerGpuRunsLonger) {
  const auto gpu = MakeProfiledGpu(
      {.mode = LoadMode::kAtomic, .link = {1e9}, .peer_link = {}, .speed = 0.5, .on_bring = {}}, models_,
      link_, use_, clock_.Timer());
  gpu->Bring({.digest = "measured"}, Time{}, Loaded("load"));
  gpu->Run("measured", std::nullopt, Time{}, Ran("run"));
  clock_.RunAll();
  EXPECT_EQ(ends_["load"], seconds(3));
  EXPECT_EQ(ends_["run"], seconds(5));
}

}  // namespace
}  // namespace troupe::sim
