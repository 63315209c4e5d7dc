// The real worker program, as a daemon uses it.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.hpp"
#include "gmock/gmock.h"
#include "gpu/jail/jail.hpp"
#include "gpu/worker/adoption.hpp"
#include "gpu/worker/exit_codes.hpp"
#include "gpu/worker/limits.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_worker/worker_harness.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(WorkerProcess, ServesARunFromAdoptionToShutdown) {
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  EXPECT_EQ(link.connection->description().device(), "virtual:0");
  EXPECT_EQ(link.connection->description().memory_bytes(), 16u << 20);
  EXPECT_EQ(link.connection->description().free_bytes(), 16u << 20);
  const auto copy = PlaceSmall(*harness.host, "m", 1, 1 << 20);
  const auto prepared = link.Ask(PrepareOf(copy, 2));
  ASSERT_EQ(prepared.code(), 0) << prepared.message();
  EXPECT_EQ(prepared.prepared().weights_bytes(), 1u << 20);
  EXPECT_EQ(prepared.prepared().outputs(0).shape(0), 2);
  const auto swapped = link.Ask(SwapInOf(copy));
  ASSERT_EQ(swapped.code(), 0) << swapped.message();
  EXPECT_EQ(swapped.bytes(), 1u << 20);
  EXPECT_GT(swapped.end_ns(), swapped.begin_ns());
  const auto ran = link.Ask(RunOf("m", 2));
  ASSERT_EQ(ran.code(), 0) << ran.message();
  EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0, 5, 7, 9, 0));
  EXPECT_GT(ran.run().compute_ns(), 0);
  const auto described = link.Ask(DescribeOf()).description();
  EXPECT_EQ(described.runs(), 1u);
  EXPECT_EQ(described.swaps(), 1u);
  EXPECT_GT(described.busy_ns(), 0);
  ASSERT_EQ(described.resident_size(), 1);
  EXPECT_EQ(described.resident(0).digest(), "m");
  ASSERT_EQ(described.prepared_size(), 1);
  EXPECT_EQ(link.Ask(EvictOf("m")).code(), 0);
  EXPECT_EQ(link.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
  EXPECT_EQ(link.Ask(ShutdownOf()).code(), 0);
  const WorkerDeath death = link.heard->AwaitDeath();
  ASSERT_TRUE(death.end.has_value());
  EXPECT_TRUE(death.end->clean()) << death.ToString();
  EXPECT_EQ(death.last_words, "shut down");
}

TEST(WorkerProcess, LargeOutputsLieInItsArenaUntilReleased) {
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m");
  const std::int64_t rows = 16 << 10;  // inputs of 256 KiB, which lie in the daemon's arena
  transport::LocalChannel::Options options;
  options.socket = harness.directory / "daemon-arena";
  options.capacity = MiB(2);
  auto channel = WorkerHarness::Value(transport::LocalChannel::Create(options));
  proto::Tensor input = SmallInput(rows);
  auto room = WorkerHarness::Value(channel->Reserve(Bytes(input.data().inlined().size())));
  std::memcpy(room.bytes().data(), input.data().inlined().data(), room.bytes().size());
  *input.mutable_data() = room.Commit();
  EXPECT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  transport::ArenaClient client{transport::ArenaClient::Options()};
  for (int round = 0; round < 100; ++round) {  // many more outputs than the arena holds
    proto::WorkerOrder order;
    order.mutable_run()->set_digest("m");
    *order.mutable_run()->add_inputs() = input;
    *order.mutable_run()->mutable_model() = copy;
    const auto ran = link.Ask(order);
    ASSERT_EQ(ran.code(), 0) << ran.message();
    const proto::ArenaRef& place = ran.run().outputs(0).data().arena();
    EXPECT_EQ(place.arena(), link.connection->output_arena().arena());
    auto resolved = client.Resolve(place);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    const auto values = Floats(resolved->bytes);
    ASSERT_EQ(values.size(), static_cast<std::size_t>(rows) * 4);
    EXPECT_EQ(values[4], 5);
    proto::WorkerOrder release;
    *release.mutable_release()->add_slices() = place;
    link.Send(release);
  }
}

TEST(WorkerProcess, AKilledWorkerIsReportedWithWhatItWrote) {
  WorkerHarness harness;
  harness.command.compute = ComputeMode::kTimed;
  const std::string profile = harness.directory / "profile";
  std::ofstream(profile) << "default 1m\n";
  harness.command.profile = profile;
  Link link = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m");
  EXPECT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  proto::WorkerOrder run = RunOf("m", 1);
  *run.mutable_run()->mutable_model() = copy;
  const std::uint64_t sequence = link.Send(run);
  // Waits until the control page says that the run is in its middle.
  while (link.connection->Progress().lanes[static_cast<std::size_t>(Lane::kCompute)].order != sequence) {
    std::this_thread::yield();
  }
  ASSERT_TRUE(link.connection->Kill().ok());
  const WorkerDeath death = link.heard->AwaitDeath();
  ASSERT_TRUE(death.end.has_value());
  EXPECT_TRUE(death.end->signaled);
  EXPECT_EQ(death.end->code, SIGKILL);
  EXPECT_FALSE(link.heard->Answered(sequence));
  EXPECT_FALSE(link.connection->Send(DescribeOf()).ok() && link.heard->Answered(0));
  // The next worker of this GPU starts at the same socket with the same memory.
  Link again = harness.StartAndAdopt();
  EXPECT_EQ(again.connection->description().resident_size(), 0);
  EXPECT_NE(again.connection->description().generation(), link.connection->description().generation());
}

TEST(WorkerProcess, ACrashLeavesLastWords) {
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  link.Send(FaultOf(proto::FaultOrder::CRASH));
  const WorkerDeath death = link.heard->AwaitDeath();
  ASSERT_TRUE(death.end.has_value());
  EXPECT_TRUE(death.end->signaled);
  EXPECT_EQ(death.end->code, SIGSEGV);
  EXPECT_THAT(death.last_words, HasSubstr("crashed by SIGSEGV"));
}

// An injected crash can be a system call that only an intruder makes.
TEST(WorkerProcess, AForbiddenCallEndsItAndIsNamed) {
  if (kJailRelaxed) GTEST_SKIP() << "a worker with a sanitizer has no jail";
  setenv("TROUPE_CRASH", "forbidden-call", 1);
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  unsetenv("TROUPE_CRASH");
  link.Send(FaultOf(proto::FaultOrder::CRASH));
  const WorkerDeath death = link.heard->AwaitDeath();
  ASSERT_TRUE(death.end.has_value());
  EXPECT_TRUE(death.end->signaled);
  EXPECT_EQ(death.end->code, SIGSYS);
  EXPECT_THAT(death.last_words, HasSubstr("ended by its jail: it made the system call ptrace"));
}

TEST(WorkerProcess, ModelsOutliveTheDaemon) {
  WorkerHarness harness;
  Link first = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m", 1, 1 << 20);
  EXPECT_EQ(first.Ask(PrepareOf(copy, 1)).code(), 0);
  EXPECT_EQ(first.Ask(SwapInOf(copy)).code(), 0);
  harness.reader->Remove(first.id);
  first.connection->Close();
  // The next daemon has another region, other links and other memory.
  transport::HostRegion::Options options;
  options.size = MiB(8);
  harness.host = *transport::HostRegion::Create("host2", options);
  harness.memory = *CreateVirtualMemory(0, MiB(4));
  harness.links = *CreateNodeLinks(1, {5e9});
  Link second = harness.Adopt(2);
  const auto& description = second.connection->description();
  EXPECT_EQ(description.generation(), first.connection->description().generation());
  EXPECT_EQ(description.memory_bytes(), 16u << 20);
  ASSERT_EQ(description.resident_size(), 1);
  EXPECT_EQ(description.resident(0).digest(), "m");
  ASSERT_EQ(description.prepared_size(), 1);
  const auto ran = second.Ask(RunOf("m", 1));  // sequence 1 again
  ASSERT_EQ(ran.code(), 0) << ran.message();
  EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
  // The memory that the worker kept comes back for the next worker.
  auto memory = transport::MemoryFile::Open(second.connection->TakeDeviceMemory(),
                                            transport::MemoryFile::Access::kReadWrite);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), MiB(16));
}

TEST(WorkerProcess, TheNewestDaemonTakesOver) {
  WorkerHarness harness;
  Link first = harness.StartAndAdopt();
  EXPECT_EQ(harness.TryAdopt(1).status().code(), absl::StatusCode::kFailedPrecondition);
  Link second = harness.Adopt(2);
  EXPECT_EQ(first.heard->AwaitCorrupt().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(harness.TryAdopt(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.Ask(DescribeOf()).code(), 0);
}

TEST(WorkerProcess, AnotherNodesDaemonIsRefused) {
  WorkerHarness harness;
  harness.Start();
  harness.command.node = "n2";
  EXPECT_EQ(harness.TryAdopt(1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WorkerProcess, TheLeaseEnds) {
  WorkerHarness harness;
  harness.command.lease = std::chrono::milliseconds(1);
  Link link = harness.StartAndAdopt();
  harness.reader->Remove(link.id);
  link.connection->Close();
  const auto end = link.connection->process().Wait(kPatience);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->code, kExitLeaseExpired);
  EXPECT_THAT(link.connection->Progress().last_words, HasSubstr("lease"));
}

TEST(WorkerProcess, AHangIsSeenInTheControlPage) {
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m");
  EXPECT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  const std::uint64_t sequence = link.next;
  EXPECT_EQ(link.Ask(FaultOf(proto::FaultOrder::HANG)).code(), 0);
  ProgressWatch watch({kPatience, Duration(1), kPatience});
  std::optional<std::string> hung;
  const Time give_up = transport::SteadyNow() + kPatience;
  while (!hung && transport::SteadyNow() < give_up) {
    const Time now = transport::SteadyNow();
    watch.Observe(link.connection->Progress(), now);
    hung = watch.Hung(now);
    std::this_thread::yield();
  }
  ASSERT_TRUE(hung.has_value());
  EXPECT_THAT(*hung, HasSubstr(absl::StrCat("compute stands still at order ", sequence)));
  EXPECT_EQ(link.Ask(DescribeOf()).code(), 0);  // the main loop still answers
  EXPECT_TRUE(link.connection->Kill().ok());
  EXPECT_TRUE(link.heard->AwaitDeath().end->signaled);
}

TEST(WorkerProcess, AStalledLinkIsSeenInTheControlPage) {
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  EXPECT_EQ(link.Ask(FaultOf(proto::FaultOrder::STALL_LINK)).code(), 0);
  const std::uint64_t sequence = link.Send(SwapInOf(PlaceSmall(*harness.host, "m", 1, 1 << 20)));
  const auto lane = [&] {
    return link.connection->Progress().lanes[static_cast<std::size_t>(Lane::kCopyIn)];
  };
  while (!lane().busy) std::this_thread::yield();
  EXPECT_EQ(lane().order, sequence);
  EXPECT_FALSE(link.heard->Answered(sequence));
  EXPECT_TRUE(link.connection->Kill().ok());
  link.heard->AwaitDeath();
}

// From now on the harness has only this link, which stops in the middle of the first 8 MiB.
HeldLink UseHeldLink(WorkerHarness& harness) {
  harness.links = *CreateNodeLinks(1, {5e7});
  return {harness.links, LinkInName(0), MiB(2)};
}

// A model of four groups: when the link stops, more than one of them has arrived, and not all.
struct SlowSwap {
  SlowSwap() {
    harness.command.group = MiB(2);
    copy = PlaceSmall(*harness.host, "m", 1, 8 << 20);
  }
  WorkerHarness harness;
  HeldLink link = UseHeldLink(harness);
  proto::HostCopy copy;
};

TEST(WorkerProcess, AWorkerKilledInMidSwapTakesNothingWithIt) {
  SlowSwap slow;
  Link link = slow.harness.StartAndAdopt();
  EXPECT_EQ(link.Ask(PrepareOf(slow.copy, 1)).code(), 0);
  const std::uint64_t swap = link.Send(SwapInOf(slow.copy));
  const std::uint64_t run = link.Send(RunOf("m", 1));
  slow.link.AwaitHeld();
  ASSERT_TRUE(link.connection->Kill().ok());
  link.heard->AwaitDeath();
  EXPECT_FALSE(link.heard->Answered(swap));
  EXPECT_FALSE(link.heard->Answered(run));
  slow.link.GoOn();
  // The dead worker holds neither the memory nor the link.
  Link again = slow.harness.StartAndAdopt();
  EXPECT_EQ(again.connection->description().free_bytes(), 16u << 20);
  proto::WorkerOrder order = RunOf("m", 1);
  *order.mutable_run()->mutable_model() = slow.copy;
  const std::uint64_t swapped = again.Send(SwapInOf(slow.copy));
  const auto ran = again.Ask(order);
  ASSERT_EQ(ran.code(), 0) << ran.message();
  EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
  const auto outcome = again.heard->Await(swapped);
  EXPECT_EQ(outcome.swap_in().group_bytes(), 2u << 20);
  EXPECT_EQ(outcome.swap_in().group_ns_size(), 4);
  EXPECT_EQ(again.Ask(EvictOf("m")).code(), 0);
  EXPECT_EQ(again.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
}

// y = x + w0 + ... + w7, whose weights have 1 MiB each: wi is i everywhere.
struct EightLayers {
  static constexpr std::int64_t kCount = 256 << 10;
  explicit EightLayers(WorkerHarness& harness) {
    harness.command.group = MiB(1);
    proto::Model model = SmallModel();
    model.clear_steps();
    model.clear_weights();
    *model.mutable_inputs(0) = Spec("x", {1});
    *model.mutable_outputs(0) = Spec("y", {kCount});
    std::vector<float> weights;
    for (int i = 0; i < 8; ++i) {
      auto* step = model.add_steps();
      step->set_op("Add");
      step->add_inputs(i == 0 ? "x" : absl::StrCat("t", i - 1));
      step->add_inputs(absl::StrCat("w", i));
      step->add_outputs(i == 7 ? "y" : absl::StrCat("t", i));
      auto* weight = model.add_weights();
      weight->set_name(absl::StrCat("w", i));
      weight->set_type(proto::FP32);
      weight->add_shape(kCount);
      weight->set_offset(weights.size() * sizeof(float));
      weight->set_length(kCount * sizeof(float));
      weights.insert(weights.end(), kCount, static_cast<float>(i));
    }
    copy = PlaceModel(*harness.host, "m", model, std::as_bytes(std::span(weights)));
  }
  [[nodiscard]] proto::WorkerOrder Run(float x) const {
    proto::WorkerOrder order;
    order.mutable_run()->set_digest("m");
    order.mutable_run()->set_by_layer(true);
    *order.mutable_run()->mutable_model() = copy;
    auto& input = *order.mutable_run()->add_inputs();
    *input.mutable_spec() = Spec("x", {1});
    input.mutable_data()->set_inlined(&x, sizeof(x));
    return order;
  }
  proto::HostCopy copy;
};

void ExpectEverywhere(const proto::WorkerOutcome& outcome, float value) {
  ASSERT_EQ(outcome.code(), 0) << outcome.message();
  transport::ArenaClient arenas{transport::ArenaClient::Options()};
  const auto data = arenas.Resolve(outcome.run().outputs(0).data().arena());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(Floats(data->bytes),
              testing::AllOf(testing::SizeIs(EightLayers::kCount), testing::Each(value)));
}

TEST(WorkerProcess, ARunByLayerNeedsAWindowAndLeavesNothing) {
  WorkerHarness harness;
  const EightLayers model(harness);
  Link link = harness.StartAndAdopt();
  const auto outcome = link.Ask(model.Run(2));
  ExpectEverywhere(outcome, 30);
  EXPECT_GE(outcome.bytes(), 8u << 20);
  const auto description = link.Ask(DescribeOf()).description();
  EXPECT_EQ(description.resident_size(), 0);
  EXPECT_EQ(description.free_bytes(), 16u << 20);
  EXPECT_LT(description.pool_peak_bytes(), 7u << 20) << "the output takes 1 MiB, the weights 8";
  EXPECT_EQ(link.Ask(SwapInOf(model.copy)).code(), 0);
  ExpectEverywhere(link.Ask(model.Run(3)), 31);
}

TEST(WorkerProcess, AWorkerKilledInARunByLayerTakesNothingWithIt) {
  WorkerHarness harness;
  const EightLayers model(harness);
  HeldLink slow = UseHeldLink(harness);
  Link link = harness.StartAndAdopt();
  proto::WorkerOrder prepare;
  *prepare.mutable_prepare()->mutable_model() = model.copy;
  *prepare.mutable_prepare()->add_inputs() = Spec("x", {1});
  EXPECT_EQ(link.Ask(prepare).code(), 0);
  const std::uint64_t run = link.Send(model.Run(2));
  slow.AwaitHeld();
  ASSERT_TRUE(link.connection->Kill().ok());
  link.heard->AwaitDeath();
  EXPECT_FALSE(link.heard->Answered(run));
  slow.GoOn();
  Link again = harness.StartAndAdopt();
  EXPECT_EQ(again.connection->description().free_bytes(), 16u << 20);
  ExpectEverywhere(again.Ask(model.Run(5)), 33);
}

TEST(WorkerProcess, ALinkThatStallsInMidSwapIsNamed) {
  SlowSwap slow;
  Link link = slow.harness.StartAndAdopt();
  const std::uint64_t swap = link.Send(SwapInOf(slow.copy));
  slow.link.AwaitHeld();  // the device is healthy: the link itself lets nothing pass any more
  ProgressWatch watch({kPatience, std::chrono::milliseconds(500), kPatience});
  std::optional<std::string> hung;
  const Time give_up = transport::SteadyNow() + kPatience;
  while (!hung && transport::SteadyNow() < give_up) {
    const Time now = transport::SteadyNow();
    watch.Observe(link.connection->Progress(), now);
    hung = watch.Hung(now);
    std::this_thread::yield();
  }
  ASSERT_TRUE(hung.has_value());
  EXPECT_THAT(*hung, HasSubstr(absl::StrCat("copy in stands still at order ", swap)));
  EXPECT_EQ(link.Ask(DescribeOf()).code(), 0);
  EXPECT_TRUE(link.connection->Kill().ok());
  link.heard->AwaitDeath();
}

TEST(WorkerProcess, SaysHowItSwaps) {
  WorkerHarness harness;
  harness.command.swap = "per-tensor";
  harness.command.link_sharing = "shared";
  Link link = harness.StartAndAdopt();
  const auto& description = link.connection->description();
  EXPECT_EQ(description.swap(), "per-tensor");
  EXPECT_EQ(description.link_sharing(), "shared");
  EXPECT_GT(description.group_bytes(), 0u) << "probed";
  EXPECT_EQ(link.Ask(SwapInOf(PlaceSmall(*harness.host, "m"))).code(), 0);
}

TEST(WorkerProcess, EveryWayOfSwappingGivesTheSameResults) {
  for (const char* swap : {"pageable", "whole", "per-tensor", "grouped"}) {
    WorkerHarness harness;
    harness.command.swap = swap;
    harness.command.group = KiB(64);
    Link link = harness.StartAndAdopt();
    const auto copy = PlaceSmall(*harness.host, "m", 1, 1 << 20);
    proto::WorkerOrder order = RunOf("m", 2);
    *order.mutable_run()->mutable_model() = copy;
    const std::uint64_t swapped = link.Send(SwapInOf(copy));
    const auto ran = link.Ask(order);
    ASSERT_EQ(ran.code(), 0) << swap << ": " << ran.message();
    EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0, 5, 7, 9, 0)) << swap;
    EXPECT_EQ(link.heard->Await(swapped).bytes(), 1u << 20) << swap;
  }
}

TEST(WorkerProcess, SeveralFunctionsAtATimeGiveTheSameResults) {
  WorkerHarness harness;
  harness.command.concurrency = 3;
  Link link = harness.StartAndAdopt();
  EXPECT_EQ(link.connection->description().concurrency(), 3u);
  std::vector<std::uint64_t> runs;
  for (int model = 0; model < 4; ++model) {
    const auto copy = PlaceSmall(*harness.host, absl::StrCat("m", model), static_cast<float>(model));
    EXPECT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
    for (const std::int64_t rows : {1, 2}) EXPECT_EQ(link.Ask(PrepareOf(copy, rows)).code(), 0);
  }
  for (int i = 0; i < 200; ++i) runs.push_back(link.Send(RunOf(absl::StrCat("m", i % 4), 1 + i % 2)));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto outcome = link.heard->Await(runs[i]);
    ASSERT_EQ(outcome.code(), 0) << outcome.message();
    const auto w = static_cast<float>(i % 4);
    std::vector<float> expected = {w, w + 2, w + 4, 0};
    if (i % 2 == 1) expected.insert(expected.end(), {w + 4, w + 6, w + 8, 0});
    EXPECT_EQ(Floats(outcome.run().outputs(0).data().inlined()), expected) << i;
  }
  EXPECT_EQ(link.Ask(DescribeOf()).description().runs(), 200u);
}

TEST(WorkerProcess, FaultsNeedTheFlag) {
  WorkerHarness harness;
  harness.command.allow_faults = false;
  Link link = harness.StartAndAdopt();
  for (const auto kind : {proto::FaultOrder::CRASH, proto::FaultOrder::HANG, proto::FaultOrder::STALL_LINK}) {
    EXPECT_EQ(link.Ask(FaultOf(kind)).code(), CodeOf(absl::StatusCode::kPermissionDenied));
  }
}

TEST(WorkerProcess, SigtermFinishesWhatComputes) {
  WorkerHarness harness;
  harness.command.compute = ComputeMode::kTimed;
  Link link = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m");
  EXPECT_EQ(link.Ask(PrepareOf(copy, 1)).code(), 0);
  EXPECT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  const std::uint64_t run = link.Send(RunOf("m", 1));
  while (link.connection->Progress().lanes[static_cast<std::size_t>(Lane::kCompute)].order != run) {
    std::this_thread::yield();
  }
  ASSERT_TRUE(link.connection->process().Signal(SIGTERM).ok());
  const WorkerDeath death = link.heard->AwaitDeath();
  EXPECT_TRUE(death.end->clean()) << death.ToString();
  EXPECT_EQ(link.heard->Await(run).code(), 0);
}

TEST(WorkerProcess, ASecondWorkerAtTheSocketSaysSo) {
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  auto second = WorkerHarness::Value(StartWorker(harness.command));
  const auto end = second.Wait(kPatience);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->code, kExitSocketInUse);
  EXPECT_EQ(link.Ask(DescribeOf()).code(), 0);
}

TEST(WorkerProcess, FlagsThatMakeNoSenseExitWithUsage) {
  const auto end_of = [](auto change) {
    WorkerHarness harness;
    change(harness.command);
    return WorkerHarness::Value(WorkerHarness::Value(StartWorker(harness.command)).Wait(kPatience)).code;
  };
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.socket = "relative"; }), kExitUsage);
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.threads = 0; }), kExitUsage);
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.arena = Bytes(1); }), kExitUsage);
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.profile = "/nonexistent", c.compute = ComputeMode::kTimed; }),
            kExitUsage);
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.device = "toaster:0"; }), kExitNoDevice);
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.swap = "pinned"; }), kExitUsage);
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.link_sharing = "fair"; }), kExitUsage);
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.group = Bytes(1); }), kExitUsage);
  EXPECT_EQ(end_of([](WorkerCommand& c) { c.block = GiB(5); }), kExitUsage);
}

TEST(WorkerProcess, NamesThatNoValueHasExitWithUsage) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--compute", "magic"}, {"--addresses", "near"}, {"--cuda-graphs", "true"}, {"--cuda-kernels", "some"}};
  for (const auto& [flag, name] : wrong) {
    WorkerHarness harness;
    transport::SpawnOptions options;
    options.arguments = harness.command.Arguments();
    const auto found = std::ranges::find(options.arguments, flag);
    ASSERT_NE(found, options.arguments.end()) << flag;
    *(found + 1) = name;
    const auto end = WorkerHarness::Value(transport::SpawnProcess(options)).Wait(kPatience);
    ASSERT_TRUE(end.ok()) << flag;
    EXPECT_EQ(end->code, kExitUsage) << flag;
  }
}

// --- hostile daemons ---

TEST(WorkerHostile, OrdersThatMakeNoSenseAreAnsweredOneByOne) {
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m");
  const auto expect = [&](proto::WorkerOrder order) { EXPECT_NE(link.Ask(std::move(order)).code(), 0); };
  expect({});
  proto::HostCopy wrong = copy;
  wrong.mutable_weights()->set_length(~std::uint64_t{0});
  expect(SwapInOf(wrong));
  expect(PrepareOf(wrong, 1));
  wrong = copy;
  wrong.set_digest("");
  expect(SwapInOf(wrong));
  wrong = copy;
  *wrong.mutable_model() = wrong.weights();
  expect(PrepareOf(wrong, 1));
  expect(PrepareOf(copy, -1));
  expect(PrepareOf(copy, std::int64_t{1} << 61));
  expect(EvictOf(std::string(5000, 'x')));
  expect(RunOf("absent", 1));
  EXPECT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  proto::WorkerOrder run = RunOf("m", 1);
  *run.mutable_run()->mutable_model() = copy;
  proto::WorkerOrder bad = run;
  bad.mutable_run()->mutable_inputs(0)->mutable_spec()->set_shape(0, 1 << 30);
  expect(bad);
  bad = run;
  bad.mutable_run()->mutable_inputs(0)->mutable_data()->mutable_arena()->set_length(16);
  expect(bad);
  bad = run;
  auto* place = bad.mutable_run()->mutable_inputs(0)->mutable_data()->mutable_arena();
  *place = link.connection->output_arena();
  place->set_length(16);
  place->set_offset(~std::uint64_t{0} - 8);
  expect(bad);
  bad = run;
  bad.mutable_run()->mutable_model()->set_digest("other");
  expect(bad);
  proto::WorkerOrder release;
  *release.mutable_release()->add_slices() = link.connection->output_arena();
  link.Send(release);
  proto::WorkerOrder cancel;
  cancel.mutable_cancel()->set_target(4711);
  link.Send(cancel);
  EXPECT_EQ(link.Ask(run).code(), 0);
}

// The other end of the rings, without the client, which would keep to the rules.
struct RawLink {
  transport::UnixConnection control;
  transport::SocketMessage reply;
};

RawLink AdoptRaw(WorkerHarness& harness, std::uint64_t epoch) {
  RawLink raw;
  for (;;) {
    auto connection = transport::ConnectUnix(harness.command.socket, kPatience);
    if (connection.ok()) {
      raw.control = *std::move(connection);
      break;
    }
    TROUPE_CHECK(!harness.process.IsDead(), "the worker is gone");
    std::this_thread::yield();
  }
  proto::AdoptHello hello;
  hello.set_node(harness.command.node);
  hello.set_daemon_epoch(epoch);
  hello.set_device_memory(true);
  const std::vector<int> fds = {harness.host->fd(), harness.memory.fd(), harness.links.fd()};
  TROUPE_CHECK(raw.control.Send(hello.SerializeAsString(), fds, kPatience).ok(), "no hello");
  raw.reply = WorkerHarness::Value(raw.control.Receive(kPatience));
  return raw;
}

TEST(WorkerHostile, RandomRecordsAreAnsweredOrEndTheAdoption) {
  WorkerHarness harness;
  harness.Start();
  Random random(2026);
  for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) {
    RawLink raw = AdoptRaw(harness, epoch);
    auto& fds = raw.reply.descriptors;
    ASSERT_GE(fds.size(), kAdoptionDescriptors);
    auto orders = WorkerHarness::Value(
        transport::RingMemory::Open(std::move(fds[kOrderRing]), std::move(fds[kOrderDoorbell])));
    auto outcomes = WorkerHarness::Value(
        transport::RingMemory::Open(std::move(fds[kOutcomeRing]), std::move(fds[kOutcomeDoorbell])));
    auto writer = WorkerHarness::Value(transport::RingWriter::Attach(orders));
    auto reader = WorkerHarness::Value(transport::RingReader::Attach(outcomes));
    std::string payload;
    for (std::uint64_t i = 1; i <= 200; ++i) {
      // Half of the orders are noise, the others are valid orders with a byte or two changed.
      proto::WorkerOrder order = RunOf("m", 1 + static_cast<std::int64_t>(random.Below(3)));
      order.set_sequence(i);
      payload = random.Below(2) == 0 ? std::string(random.Below(300), '\0') : order.SerializeAsString();
      if (payload.empty() || payload[0] == 0) {
        for (char& c : payload) c = static_cast<char>(random.Below(256));
      } else {
        payload[random.Below(payload.size())] = static_cast<char>(random.Below(256));
      }
      const auto op = static_cast<std::uint16_t>(random.Below(4) == 0 ? random.Below(65536) : 1);
      ASSERT_TRUE(writer.Write(op, 0, i, std::as_bytes(std::span(payload)), kPatience).ok());
    }
    // The last order is valid; once it is answered all others have been.
    proto::WorkerOrder describe = DescribeOf();
    describe.set_sequence(999);
    payload = describe.SerializeAsString();
    ASSERT_TRUE(writer.Write(kOrderOp, 0, 999, std::as_bytes(std::span(payload)), kPatience).ok());
    transport::RingRecord record;
    while (record.sequence != 999) {
      ASSERT_TRUE(reader.Wait(kPatience));
      ASSERT_TRUE(reader.TryRead(record).ok());
    }
    // Then the ring itself is damaged: every byte of its control block, as a dying process might leave it.
    std::byte* memory = reinterpret_cast<std::byte*>(&orders->control());
    for (std::size_t at = 64; at < 4096; ++at) memory[at] = static_cast<std::byte>(random.Below(256));
    const std::uint64_t one = 1;
    ASSERT_EQ(write(orders->doorbell_fd(), &one, sizeof(one)), 8);
    // The worker drops the connection of this daemon, or sees nothing wrong yet; in both cases it accepts a
    // later one.
  }
  ASSERT_FALSE(harness.process.IsDead());
  Link link = harness.Adopt(100);
  EXPECT_EQ(link.Ask(DescribeOf()).code(), 0);
}

TEST(WorkerHostile, HellosThatMakeNoSenseAreRefused) {
  WorkerHarness harness;
  harness.Start();
  const auto refused = [&](const std::string& bytes, const std::vector<int>& fds) {
    absl::StatusOr<transport::UnixConnection> control = absl::NotFoundError("");
    while (!control.ok()) control = transport::ConnectUnix(harness.command.socket, kPatience);
    EXPECT_TRUE(control->Send(bytes, fds, kPatience).ok());
    const auto answer = control->Receive(kPatience);
    proto::AdoptReply reply;
    return answer.ok() && reply.ParseFromString(answer->bytes) && reply.code() != 0;
  };
  proto::AdoptHello hello;
  hello.set_node("n1");
  EXPECT_TRUE(refused("\xff\xff\xff", {}));
  EXPECT_TRUE(refused(hello.SerializeAsString(), {}));
  EXPECT_TRUE(refused(hello.SerializeAsString(), {harness.host->fd()}));  // a virtual device without memory
  hello.set_device_memory(true);
  EXPECT_TRUE(refused(hello.SerializeAsString(), {harness.host->fd()}));
  EXPECT_TRUE(
      refused(hello.SerializeAsString(), {harness.host->fd(), harness.memory.fd(), harness.host->fd()}));
  EXPECT_TRUE(
      refused(hello.SerializeAsString(), {harness.memory.fd(), harness.memory.fd(), harness.links.fd()}));
  EXPECT_TRUE(refused(hello.SerializeAsString(), {0, 1, 2}));
  Link link = harness.Adopt(1);
  EXPECT_EQ(link.Ask(DescribeOf()).code(), 0);
}

TEST(WorkerHostile, SilentConnectionsKeepNoDaemonOut) {
  WorkerHarness harness;
  Link link = harness.StartAndAdopt();
  std::vector<transport::UnixConnection> silent;
  for (std::size_t i = 0; i < 3 * WorkerLimits().handshakes; ++i)
    silent.push_back(WorkerHarness::Value(transport::ConnectUnix(harness.command.socket, kPatience)));
  Link newer = harness.Adopt(2);
  EXPECT_EQ(newer.Ask(DescribeOf()).code(), 0);
  // The oldest of the connections was closed to make room. The daemon hears of that, as it does of a hello
  // that makes no sense.
  EXPECT_TRUE(absl::IsUnavailable(silent.front().Receive(kPatience).status()));
  ASSERT_TRUE(silent.back().Send("this is not a hello", {}, kPatience).ok());
  EXPECT_TRUE(silent.back().Receive(kPatience).ok()) << "the answer says why";
  const auto expected = 2 * WorkerLimits().handshakes + 1;
  while (newer.connection->Progress().refused < expected) std::this_thread::yield();
}

TEST(WorkerHostile, MoreOrdersThanTheRingHoldsAreRefusedAtTheSender) {
  WorkerHarness harness;
  harness.command.compute = ComputeMode::kTimed;
  Link link = harness.StartAndAdopt();
  ASSERT_TRUE(link.connection->process().Signal(SIGSTOP).ok());
  proto::WorkerOrder order = RunOf("m", 4096);  // inputs and outputs of 64 KiB each
  absl::Status status;
  for (std::uint64_t i = 1; status.ok(); ++i) {
    order.set_sequence(i);
    status = link.connection->Send(order);
    ASSERT_LT(i, 1000u);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(link.connection->process().Signal(SIGCONT).ok());
  EXPECT_NE(link.heard->Await(1).code(), 0);  // no such model
}

TEST(WorkerHostile, ASilentReaderOfOutcomesLosesNothing) {
  WorkerHarness harness;
  harness.Start();
  std::shared_ptr<WorkerConnection> connection = WorkerHarness::Value(harness.TryAdopt(1));
  // 20,000 refusals of long digests are more than the outcome ring holds.
  proto::WorkerOrder order = EvictOf(std::string(100, 'x'));
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  const auto read_all = [&] {
    proto::WorkerOutcome outcome;
    while (*connection->Receive(outcome)) EXPECT_EQ(outcome.sequence(), ++received);
  };
  while (sent < 50'000) {
    order.set_sequence(sent + 1);
    const absl::Status status = connection->Send(order);
    if (status.ok()) {
      ++sent;
    } else {
      ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      read_all();
    }
  }
  while (received < sent) {
    (void)connection->reader().Wait(kPatience);
    read_all();
  }
}

}  // namespace
}  // namespace troupe::gpu::test
