// Requests that one run answers: as a node's scheduler joins them, and what becomes of each.
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node::batches_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// One GPU with a model for which runs of up to four rows are prepared and were measured: 10, 11, and 14 ms.
class BatchesTest : public SchedulerTest {
 protected:
  explicit BatchesTest(const char* batching = "greedy", SchedulerLimits limits = Limits())
      : SchedulerTest(limits, PoliciesWith(&PolicyNames::batching, batching)) {
    Gpus(1, false);
    Model("m", 10);
    Model("other", 10);
    Prepare();
    Learn();
  }
  static SchedulerLimits Limits() {
    SchedulerLimits limits;
    limits.swap_ahead = 1;  // one run at a time
    return limits;
  }
  void Prepare() {
    scheduler.BatchPrepared(0, ModelNamed("m"), 2, MiB(2));
    scheduler.BatchPrepared(0, ModelNamed("m"), 4, MiB(4));
  }
  NodeRequest Request(std::uint64_t sequence) const {
    NodeRequest request;
    request.id = {1, sequence};
    request.function = FunctionNamed("f");
    request.model = ModelNamed("m");
    request.deadline = deadline;
    request.expiry = expiry;
    request.batch = {.kind = "1/0", .rows = 1, .most = 4, .inlined = {}};
    return request;
  }
  void Ask(const NodeRequest& request) { ASSERT_TRUE(scheduler.Submit(request, now).accepted); }
  void Ask(std::uint64_t sequence) { Ask(Request(sequence)); }
  Consequences Done(const Dispatch& dispatch, int ms, absl::Status status = absl::OkStatus(),
                    RunEnd end = RunEnd::kRan) {
    Loaded(dispatch);
    auto effects = scheduler.Apply(RunDone{.gpu = dispatch.gpu,
                                           .request = dispatch.request,
                                           .end = end,
                                           .status = std::move(status),
                                           .took = milliseconds(ms),
                                           .computed = milliseconds(ms),
                                           .free = MiB(80)},
                                   now);
    scheduler.Check();
    return effects;
  }
  // So many requests, the first of which finds the GPU idle.
  void Learn() {
    std::uint64_t sequence = 1000;
    for (const auto& [rows, ms] : {std::pair(1, 10), std::pair(2, 11), std::pair(4, 14)}) {
      for (int run = 0; run < 4; ++run) {
        for (int i = 0; i < rows; ++i) Ask(sequence++);
        const auto dispatch = Next();
        ASSERT_THAT(dispatch.members, SizeIs(rows - 1));
        ASSERT_THAT(Done(dispatch, ms).finished, SizeIs(rows));
      }
    }
  }
  static std::vector<std::uint64_t> SequencesOf(const Dispatch& dispatch) {
    std::vector<std::uint64_t> sequences{dispatch.request.sequence};
    for (const auto& id : dispatch.members) sequences.push_back(id.sequence);
    return sequences;
  }
  // A request runs, and others come meanwhile; the dispatch after it has ended.
  Dispatch After(const std::vector<NodeRequest>& others) {
    Ask(1);
    const auto first = Next();
    for (const auto& request : others) Ask(request);
    EXPECT_THAT(Decide(), IsEmpty());
    Done(first, 10);
    return Next();
  }
};

TEST_F(BatchesTest, WhatWaitsGoesTogether) {
  const auto batch = After({Request(2), Request(3), Request(4), Request(5), Request(6)});
  EXPECT_THAT(SequencesOf(batch), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(scheduler.gpus().at(0).in_flight, 1u);
  EXPECT_EQ(scheduler.gpus().at(0).promised, MiB(4));
  const auto effects = Done(batch, 14);
  ASSERT_THAT(effects.finished, SizeIs(4));
  for (const auto& finished : effects.finished) {
    EXPECT_EQ(finished.kind, FinishKind::kServed);
    EXPECT_EQ(finished.attempts, 1u);
    EXPECT_TRUE(finished.hit);
  }
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(6));
  EXPECT_EQ(scheduler.gpus().at(0).promised, MiB(1));
}

// The weights take 10 MiB, and runs of one, two and four rows take 1, 2 and 4 MiB.
TEST_F(BatchesTest, ABatchTakesNoMoreMemoryThanItsFunctionMayHave) {
  const auto limited = [&](std::uint64_t sequence, Bytes gpu_mem) {
    auto request = Request(sequence);
    request.gpu_mem = gpu_mem;
    return request;
  };
  const auto batch = [&](Bytes gpu_mem) {
    std::vector<NodeRequest> requests;
    for (std::uint64_t i = 2; i <= 5; ++i) requests.push_back(limited(i, gpu_mem));
    const auto first = After(requests);
    const auto size = first.members.size() + 1;
    Done(first, 10);
    for (auto left = requests.size() - size; left > 0;) {
      const auto next = Next();
      left -= next.members.size() + 1;
      Done(next, 10);
    }
    return size;
  };
  EXPECT_EQ(batch(MiB(14)), 4u);
  EXPECT_EQ(batch(MiB(14) - Bytes(1)), 2u);
  EXPECT_EQ(batch(MiB(12) - Bytes(1)), 1u);
  EXPECT_EQ(batch(MiB(5)), 1u) << "the worker says why";
}

TEST_F(BatchesTest, WhatIsOfAnotherKindGoesByItself) {
  struct Case {
    const char* what;
    std::function<void(NodeRequest&)> change;
  };
  const Case cases[] = {
      {"no terms", [](NodeRequest& r) { r.batch = {}; }},
      {"another version", [](NodeRequest& r) { r.batch.kind = "2/0"; }},
      {"another function", [](NodeRequest& r) { r.function = FunctionNamed("g"); }},
      {"another model", [](NodeRequest& r) { r.model = ModelNamed("other"); }},
      {"another priority", [](NodeRequest& r) { r.priority = 5; }},
      {"a trial", [](NodeRequest& r) { r.trial = true; }},
      {"too many rows", [](NodeRequest& r) { r.batch.rows = 4; }},
      {"too many bytes in the order", [](NodeRequest& r) { r.batch.inlined = MiB(1); }},
  };
  std::uint64_t sequence = 10;
  for (const auto& c : cases) {
    Ask(sequence);
    const auto first = Next();
    NodeRequest plain = Request(sequence + 1), changed = Request(sequence + 2);
    c.change(changed);
    Ask(plain);
    Ask(changed);
    Done(first, 10);
    const auto second = Next();
    EXPECT_THAT(second.members, IsEmpty()) << c.what;
    Done(second, 10);
    Done(Next(), 10);
    sequence += 3;
  }
}

TEST_F(BatchesTest, ARequestThatWouldBeLateByItGoesAlone) {
  deadline = now + milliseconds(12);
  auto relaxed = Request(3);
  relaxed.deadline = Time::max();
  const auto alone = After({Request(2), relaxed});
  EXPECT_THAT(SequencesOf(alone), ElementsAre(2));
  Done(alone, 10);
  Done(Next(), 10);
  deadline = now + milliseconds(13);
  relaxed.id.sequence = 13;
  Ask(Request(11));
  const auto first = Next();
  Ask(Request(12));
  Ask(relaxed);
  Done(first, 10);
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(12, 13));
}

TEST_F(BatchesTest, TheRunIsWantedByTheFirstDeadlineAndUntilTheLastTimeout) {
  auto early = Request(2), late = Request(3);
  early.deadline = now + milliseconds(100);
  early.expiry = now + milliseconds(200);
  late.deadline = now + milliseconds(150);
  late.expiry = now + milliseconds(900);
  const auto batch = After({early, late});
  EXPECT_THAT(SequencesOf(batch), ElementsAre(2, 3));
  EXPECT_EQ(batch.deadline, early.deadline - milliseconds(11));
  EXPECT_EQ(batch.expiry, late.expiry);
}

TEST_F(BatchesTest, ACancelledRequestTakesNoOtherWithIt) {
  const auto batch = After({Request(2), Request(3), Request(4), Request(5)});
  EXPECT_EQ(scheduler.Cancel({1, 3}).verdict, CancelVerdict::kInFlight);
  EXPECT_EQ(scheduler.Cancel({1, 2}).verdict, CancelVerdict::kInFlight);
  const auto effects = Done(batch, 0, absl::InternalError("broken"));
  // The cancelled requests end; the others run again.
  ASSERT_THAT(effects.finished, SizeIs(2));
  for (const auto& finished : effects.finished) EXPECT_EQ(finished.kind, FinishKind::kCancelled);
  const auto next = Next();
  EXPECT_THAT(SequencesOf(next), ElementsAre(4));
  Done(next, 10);
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(5));
}

TEST_F(BatchesTest, ABatchThatFailsRunsApartOnce) {
  const auto batch = After({Request(2), Request(3)});
  EXPECT_THAT(Done(batch, 0, absl::InternalError("broken")).finished, IsEmpty());
  const auto again = Next();
  EXPECT_THAT(SequencesOf(again), ElementsAre(2));
  EXPECT_EQ(again.attempt, 1u);
  const auto failed = Done(again, 0, absl::InternalError("broken"));
  ASSERT_THAT(failed.finished, SizeIs(1));
  EXPECT_EQ(failed.finished[0].kind, FinishKind::kFailed);
  const auto served = Done(Next(), 10);
  ASSERT_THAT(served.finished, SizeIs(1));
  EXPECT_EQ(served.finished[0].kind, FinishKind::kServed);
  EXPECT_EQ(scheduler.counts().apart, 1u);
  // New requests are joined again.
  Ask(10);
  const auto first = Next();
  Ask(11);
  Ask(12);
  Done(first, 10);
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(11, 12));
}

TEST_F(BatchesTest, OutputsThatCannotBeDividedEndBatchesOfTheModel) {
  const auto batch = After({Request(2), Request(3)});
  Done(batch, 0, absl::UnimplementedError("cannot be divided"));
  Done(Next(), 10);
  Done(Next(), 10);
  Ask(10);
  const auto first = Next();
  Ask(11);
  Ask(12);
  Done(first, 10);
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(11));
}

TEST_F(BatchesTest, WithoutRoomItRunsApartAndWithoutTheModelTogether) {
  const auto batch = After({Request(2), Request(3)});
  EXPECT_THAT(Done(batch, 0, absl::ResourceExhaustedError("no room"), RunEnd::kNoFit).finished, IsEmpty());
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(2));
}

TEST_F(BatchesTest, WithoutItsModelItIsPlannedAgain) {
  const auto batch = After({Request(2), Request(3)});
  EXPECT_THAT(Done(batch, 0, absl::NotFoundError("gone"), RunEnd::kNotResident).finished, IsEmpty());
  const auto again = Next();
  EXPECT_EQ(again.source, SwapSource::kHost);
  EXPECT_THAT(SequencesOf(again), ElementsAre(2, 3));
  EXPECT_THAT(Done(again, 11).finished, SizeIs(2));
}

TEST_F(BatchesTest, ALostWorkerCountsAnAttemptOfEachAndEachRunsAlone) {
  After({Request(2), Request(3)});
  EXPECT_THAT(scheduler.Apply(WorkerLost{0, "the test says so"}, now).finished, IsEmpty());
  scheduler.Check();
  Ready(0, false);
  Prepare();
  for (const std::uint64_t sequence : {2, 3}) {
    const auto again = Next();
    EXPECT_THAT(SequencesOf(again), ElementsAre(sequence));
    EXPECT_EQ(again.attempt, 2u);
    const auto served = Done(again, 10);
    ASSERT_THAT(served.finished, SizeIs(1));
    EXPECT_EQ(served.finished[0].attempts, 2u);
  }
}

TEST_F(BatchesTest, ANewWorkerHasNoPlansForBatches) {
  scheduler.Apply(WorkerLost{0, "the test says so"}, now);
  Ready(0, false);
  EXPECT_THAT(SequencesOf(After({Request(2), Request(3)})), ElementsAre(2));
}

class SlackTest : public BatchesTest {
 protected:
  SlackTest() : BatchesTest("slack", TwoAhead()) {}
  static SchedulerLimits TwoAhead() {
    SchedulerLimits limits;
    limits.swap_ahead = 4;
    return limits;
  }
};

TEST_F(SlackTest, WhatWouldOnlyWaitAtTheGpuWaitsForCompany) {
  deadline = now + milliseconds(100);
  Ask(1);
  const auto first = Next();  // the GPU is idle
  Ask(2);
  const auto second = Next();  // the next one is there already when it ends
  EXPECT_THAT(second.members, IsEmpty());
  Ask(3);
  Decision waits = scheduler.Decide(now);
  EXPECT_THAT(waits.dispatches, IsEmpty());
  EXPECT_GT(waits.due, now);
  EXPECT_LE(waits.due, now + milliseconds(50));
  Ask(4);
  EXPECT_THAT(Decide(), IsEmpty());
  Done(first, 10);
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(3, 4));
  Done(second, 10);
}

TEST_F(SlackTest, NotForLongerThanItsDeadlineSpares) {
  deadline = now + milliseconds(100);
  Ask(1);
  Next();
  Ask(2);
  Next();
  Ask(3);
  const Time due = scheduler.Decide(now).due;
  now = due - milliseconds(1);
  Ask(4);  // and it does not wait longer since another one came
  EXPECT_THAT(Decide(), IsEmpty());
  now = due;
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(3, 4));
}

TEST_F(SlackTest, NotBeyondAFullBatch) {
  Ask(1);
  Next();
  Ask(2);
  Next();
  for (const std::uint64_t sequence : {3, 4, 5}) Ask(sequence);
  EXPECT_THAT(Decide(), IsEmpty());
  Ask(6);
  EXPECT_THAT(SequencesOf(Next()), ElementsAre(3, 4, 5, 6));
}

// The same requests, and nothing was learned.
class OffTest : public SchedulerTest {
 protected:
  OffTest() : SchedulerTest(SchedulerLimits(), PoliciesWith(&PolicyNames::batching, "off")) {}
};

TEST_F(OffTest, NothingIsJoined) {
  Gpus(1, false);
  Model("m", 10);
  scheduler.BatchPrepared(0, ModelNamed("m"), 2, MiB(2));
  for (std::uint64_t sequence = 1; sequence <= 40; ++sequence) {
    NodeRequest request;
    request.id = {1, sequence};
    request.function = FunctionNamed("f");
    request.model = ModelNamed("m");
    request.batch = {.kind = "1/0", .rows = 1, .most = 4, .inlined = {}};
    ASSERT_TRUE(scheduler.Submit(request, now).accepted);
    for (const auto& dispatch : Decide()) {
      EXPECT_THAT(dispatch.members, IsEmpty());
      Serve(dispatch);
    }
  }
}

}  // namespace
}  // namespace troupe::node::batches_test
