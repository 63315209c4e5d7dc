// Models that several GPUs load at once: which GPU sends to which, and until when.
#include "node/scheduling/broadcasts.hpp"

#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::broadcasts_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr ModelId kM = 7, kN = 8, kOther = 9;

Broadcasts::Member At(GpuIndex gpu) {
  return {gpu, gpu};
}

TEST(BroadcastsTest, AGpuThatComesBeforeItIsSentJoins) {
  Broadcasts broadcasts;
  EXPECT_TRUE(broadcasts.MayJoin(At(0), At(1), kM));
  broadcasts.Join(At(0), At(1), kM);
  EXPECT_TRUE(broadcasts.MayJoin(At(0), At(2), kM));
  EXPECT_FALSE(broadcasts.MayJoin(At(0), At(2), kOther)) << "the sender has one model to send already";
  broadcasts.Join(At(0), At(2), kM);
  const auto orders = broadcasts.Send();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].sender, 0u);
  EXPECT_EQ(orders[0].model, kM);
  EXPECT_THAT(orders[0].receivers, ElementsAre(1, 2));
  EXPECT_FALSE(broadcasts.MayJoin(At(0), At(3), kM)) << "the model is on its way there";
  EXPECT_THAT(broadcasts.Send(), IsEmpty());
}

TEST(BroadcastsTest, AGpuTakesPartInOneAtATime) {
  Broadcasts broadcasts;
  broadcasts.Join(At(0), At(1), kM);
  EXPECT_FALSE(broadcasts.MayJoin(At(2), At(1), kN)) << "the GPU receives already";
  EXPECT_FALSE(broadcasts.MayJoin(At(2), At(0), kN)) << "the GPU sends already";
  EXPECT_FALSE(broadcasts.MayJoin(At(1), At(2), kM)) << "a receiver does not send the same model";
  EXPECT_FALSE(broadcasts.MayJoin(At(3), At(3), kN)) << "a GPU does not send to itself";
  // Two runtimes of one GPU are one GPU.
  EXPECT_FALSE(broadcasts.MayJoin({7, 1}, At(2), kN));
  EXPECT_FALSE(broadcasts.MayJoin({7, 0}, At(2), kM))
      << "a runtime of the same GPU that is not the sender cannot be joined";
  EXPECT_TRUE(broadcasts.MayJoin(At(2), At(3), kN)) << "these two GPUs are free";
  (void)broadcasts.Send();
  broadcasts.End(1, kOther);
  EXPECT_FALSE(broadcasts.MayJoin(At(2), At(1), kN));
  broadcasts.End(1, kM);
  EXPECT_TRUE(broadcasts.MayJoin(At(2), At(1), kN));
  EXPECT_TRUE(broadcasts.MayJoin(At(2), At(0), kN));
  EXPECT_EQ(broadcasts.size(), 0u);
}

TEST(BroadcastsTest, LostReceiversAreNotWaitedForAndALostSenderIsDoneWithItsReceivers) {
  Broadcasts broadcasts;
  broadcasts.Join(At(0), At(1), kM);
  broadcasts.Join(At(0), At(2), kM);
  broadcasts.Lose(1);
  EXPECT_THAT(broadcasts.Send().at(0).receivers, ElementsAre(2));
  broadcasts.Lose(0);
  EXPECT_EQ(broadcasts.size(), 1u) << "GPU 2 may still wait for the broadcast";
  broadcasts.Lose(2);
  EXPECT_EQ(broadcasts.size(), 0u);
  broadcasts.Join(At(0), At(1), kM);
  broadcasts.Lose(1);
  EXPECT_THAT(broadcasts.Send(), IsEmpty()) << "no receiver is left";
}

TEST(BroadcastsTest, RulesHaveNames) {
  EXPECT_EQ(*FindBroadcastRule("off"), BroadcastRule::kOff);
  EXPECT_EQ(*FindBroadcastRule("burst"), BroadcastRule::kBurst);
  EXPECT_TRUE(absl::IsNotFound(FindBroadcastRule("always").status()));
  EXPECT_EQ(SchedulerLimits().broadcast, BroadcastRule::kOff);
}

SchedulerPolicies MostFree() {
  PolicyNames names;
  names.gpu = "most-free";
  return *FindSchedulerPolicies(names);
}

// Three GPUs, of which the first two have a link.
class BroadcastDecision : public SchedulerTest {
 protected:
  explicit BroadcastDecision(BroadcastRule rule = BroadcastRule::kBurst,
                             const char* topology = "link:0-1=25GB")
      : SchedulerTest({.broadcast = rule}, MostFree(), topology) {
    for (GpuIndex gpu = 0; gpu < 3; ++gpu) {
      scheduler.AddGpu(gpu, MiB(100));
      Up(gpu);
    }
    Model("a", 40);
    Model("b", 41);  // its GPU then has less room than the others
  }
  void Up(GpuIndex gpu, bool broadcasts = true) {
    scheduler.Apply(
        WorkerReady{
            .gpu = gpu, .memory = MiB(100), .free = MiB(100), .peer_copies = true, .broadcasts = broadcasts},
        now);
  }
  Dispatch Ask(std::uint64_t sequence, const std::string& model) {
    Submit(sequence, model);
    return Next();
  }
};

TEST_F(BroadcastDecision, WhatAGpuIsLoadingComesToTheNextFromThere) {
  const Dispatch first = Ask(1, "a");
  EXPECT_EQ(first.source, SwapSource::kHost);
  EXPECT_EQ(first.gpu, 0u);
  const Dispatch second = Ask(2, "a");
  EXPECT_EQ(second.gpu, 1u);
  EXPECT_EQ(second.source, SwapSource::kBroadcast);
  EXPECT_EQ(second.peer, 0u);
  EXPECT_EQ(scheduler.FindResident(0, ModelNamed("a"))->readers, 1u)
      << "the model is locked while it is sent";
  const Dispatch third = Ask(3, "a");
  EXPECT_EQ(third.gpu, 2u);
  EXPECT_EQ(third.source, SwapSource::kHost) << "no link leads to the third GPU";
  const auto orders = scheduler.CloseBroadcasts();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_THAT(orders[0].receivers, ElementsAre(1));
  EXPECT_EQ(scheduler.counts().broadcasts, 1u);
  EXPECT_EQ(scheduler.counts().peer_swaps, 0u);
  EXPECT_EQ(scheduler.gpus().at(1).host_loads.size(), 0u) << "the host's link is not used";
  // The sender may be done before the receiver, and keeps the model until the receiver is done, too.
  Serve(first);
  EXPECT_FALSE(scheduler.FindResident(0, ModelNamed("a"))->Idle());
  Serve(second);
  Serve(third);
  EXPECT_TRUE(scheduler.FindResident(0, ModelNamed("a"))->Idle());
}

TEST_F(BroadcastDecision, OfTheSamePassAllJoin) {
  SwapScheduler all({.broadcast = BroadcastRule::kBurst}, MostFree(), {}, *Topology::Parse("v100x4"));
  for (GpuIndex gpu = 0; gpu < 4; ++gpu) {
    all.AddGpu(gpu, MiB(100));
    all.Apply(WorkerReady{.gpu = gpu, .memory = MiB(100), .free = MiB(100), .broadcasts = true}, now);
  }
  all.DescribeModel(ModelNamed("a"), MiB(40), MiB(1));
  for (std::uint64_t i = 0; i < 4; ++i) {
    NodeRequest request;
    request.id = {1, i};
    request.function = FunctionNamed("f");
    request.model = ModelNamed("a");
    ASSERT_TRUE(all.Submit(request, now).accepted);
  }
  const auto dispatches = all.Decide(now).dispatches;
  ASSERT_EQ(dispatches.size(), 4u);
  EXPECT_EQ(dispatches[0].source, SwapSource::kHost);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(dispatches[i].source, SwapSource::kBroadcast);
    EXPECT_EQ(dispatches[i].peer, dispatches[0].gpu);
  }
  EXPECT_EQ(all.CloseBroadcasts().at(0).receivers.size(), 3u);
  all.Check();
}

TEST_F(BroadcastDecision, AWorkerThatCannotTakesItFromTheHost) {
  Up(1, false);
  Ask(1, "a");
  EXPECT_EQ(Ask(2, "a").source, SwapSource::kHost);
}

class LinkedBroadcasts : public BroadcastDecision {
 protected:
  LinkedBroadcasts() : BroadcastDecision(BroadcastRule::kBurst, "link:0-1=25GB,link:0-2=25GB") {}
};
TEST_F(LinkedBroadcasts, AGpuTakesPartInOneBroadcastAtATime) {
  Ask(1, "a");
  const Dispatch second = Ask(2, "a");
  ASSERT_EQ(second.source, SwapSource::kBroadcast);
  EXPECT_EQ(scheduler.CloseBroadcasts().size(), 1u);
  EXPECT_EQ(Ask(3, "b").gpu, 2u);
  const Dispatch busy = Ask(4, "b");
  EXPECT_EQ(busy.gpu, 0u);
  EXPECT_EQ(busy.source, SwapSource::kHost) << "the GPU with the model sends already";
  EXPECT_THAT(scheduler.CloseBroadcasts(), IsEmpty());
}
TEST_F(LinkedBroadcasts, AReceiverThatHasItsModelFreesBoth) {
  Ask(1, "a");
  Loaded(Ask(2, "a"));
  EXPECT_EQ(Ask(3, "b").gpu, 2u);
  const Dispatch free = Ask(4, "b");
  EXPECT_EQ(free.gpu, 0u);
  EXPECT_EQ(free.source, SwapSource::kBroadcast);
  EXPECT_EQ(free.peer, 2u);
}

TEST_F(BroadcastDecision, ASenderWhoseLoadFailsOrDiesCostsItsReceiverNothing) {
  const Dispatch first = Ask(1, "a");
  const Dispatch second = Ask(2, "a");
  ASSERT_EQ(second.source, SwapSource::kBroadcast);
  scheduler.Apply(WorkerLost{0, "killed"}, now);
  scheduler.Check();
  // The receiver's worker loads the missing groups from the host.
  Loaded(second);
  EXPECT_EQ(Ran(second).finished.at(0).kind, FinishKind::kServed);
  EXPECT_EQ(scheduler.FindResident(1, ModelNamed("a"))->readers, 0u);
}

TEST_F(BroadcastDecision, AModelThatDidNotComeIsPlannedFromTheHost) {
  Ask(1, "a");
  const Dispatch second = Ask(2, "a");
  ASSERT_EQ(second.source, SwapSource::kBroadcast);
  (void)scheduler.CloseBroadcasts();
  Loaded(second, absl::InternalError("bad"));
  EXPECT_THAT(Ran(second, RunEnd::kNotResident).finished, IsEmpty());
  const Dispatch again = Next();
  EXPECT_EQ(again.request.sequence, 2u);
  EXPECT_EQ(again.source, SwapSource::kHost);
}

class NoBroadcasts : public BroadcastDecision {
 protected:
  NoBroadcasts() : BroadcastDecision(BroadcastRule::kOff) {}
};
TEST_F(NoBroadcasts, WithoutTheRuleAllComesFromTheHost) {
  Ask(1, "a");
  EXPECT_EQ(Ask(2, "a").source, SwapSource::kHost);
}

}  // namespace
}  // namespace troupe::node::broadcasts_test
