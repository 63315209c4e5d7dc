// A node whose routers name the GPU of each request: it obeys, it tells them of its GPUs, and what it cannot obey leaves it.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::named_gpus_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Router 7 names GPUs, router 8 does not; functions "f" and "g" are adopted and prepared on both GPUs.
class NamedGpus : public NodeTest {
 protected:
  explicit NamedGpus(NodeSettings settings = Settings(2), bool adopts = true)
      : NodeTest(std::move(settings)) {
    Up(0);
    Up(1);
    HelloOf(7, true);
    HelloOf(8, false);
    if (!adopts) return;
    for (const char* function : {"f", "g"}) {
      Adopt(function);
      Answered(0, "prepare");
      Answered(1, "prepare");
    }
  }
  void HelloOf(std::uint64_t router, bool names_gpus) {
    proto::RouterHello hello;
    hello.set_router(router);
    hello.set_queued(100);
    hello.set_names_gpus(names_gpus);
    Watch(RouterSaidHello{1, hello});
  }
  Lines SubmitTo(std::uint32_t gpu, Ask ask, const std::string& function, std::uint64_t router = 7) {
    RequestArrived arrived;
    arrived.ask = ask;
    arrived.message.mutable_id()->set_router(router);
    arrived.message.mutable_id()->set_sequence(ask);
    *arrived.message.mutable_function() = Function(function).key();
    arrived.message.set_model_digest(Function(function).model_digest());
    arrived.message.set_gpu(gpu);
    return On(std::move(arrived));
  }
  // Hears an event, and keeps the grants of what the node does.
  void Watch(Event event) {
    for (const auto& effect : Raw(std::move(event))) {
      if (const auto* told = std::get_if<TellRouter>(&effect)) grants_[told->router] = told->grant;
      if (const auto* hello = std::get_if<Answer<proto::CreditGrant>>(&effect)) grants_[0] = hello->reply;
    }
  }
  // What the next grant tells the router: "0 ready f, g" and "1 gone", with what others have there.
  std::vector<std::string> GpusToldTo(std::uint64_t router) {
    grants_.clear();
    now += milliseconds(20);
    Watch(TimerFired{Timer::kGrant});
    std::vector<std::string> lines;
    for (const auto& gpu : grants_[router].gpus()) {
      std::string line = absl::StrCat(gpu.gpu(), gpu.ready() ? " ready" : " gone");
      for (const auto& model : gpu.resident()) absl::StrAppend(&line, " ", model);
      if (gpu.others() > 0) absl::StrAppend(&line, ", others ", gpu.others());
      lines.push_back(line);
    }
    return lines;
  }

  std::map<std::uint64_t, proto::CreditGrant> grants_;  // by router; 0: the answer to a hello
};

TEST_F(NamedGpus, ARequestRunsOnTheGpuThatItNamesWhereverElseItsModelIs) {
  EXPECT_THAT(SubmitTo(1, 1, "f"), ElementsAre("order 1 swap-in packed-f", "order 1 run packed-f"));
  Answered(1, "swap-in");
  EXPECT_THAT(Answered(1, "run"), ElementsAre("answer 1 OK"));
  EXPECT_THAT(SubmitTo(0, 2, "f"), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"));
}

TEST_F(NamedGpus, TheQueueOfAGpuIsAsLongAsItsRouterMakesIt) {
  SubmitTo(1, 1, "f");
  for (Ask ask = 2; ask <= 8; ++ask)
    EXPECT_THAT(SubmitTo(1, ask, "f"), ElementsAre("order 1 run packed-f")) << ask;
  // What names no GPU is decided as ever.
  EXPECT_THAT(Submit(20, "g", 8), ElementsAre("order 0 swap-in packed-g", "order 0 run packed-g"));
}

TEST_F(NamedGpus, WhatALostWorkerHadGoesBackToTheRouterWithTheAttemptThatItCost) {
  SubmitTo(1, 1, "f");
  SubmitTo(1, 2, "f");
  std::vector<std::uint32_t> attempts;
  for (const auto& effect : Raw(LostWorker(1)))
    if (const auto* answer = std::get_if<Answer<proto::SubmitReply>>(&effect)) {
      EXPECT_EQ(answer->reply.bounced().reason(), proto::BOUNCE_NO_GPU);
      attempts.push_back(answer->reply.bounced().attempts());
    }
  EXPECT_THAT(attempts, ElementsAre(1, 1));
  EXPECT_THAT(SubmitTo(1, 3, "f"), ElementsAre("bounce 3 BOUNCE_NO_GPU"));
  EXPECT_THAT(SubmitTo(0, 4, "f"), ElementsAre("order 0 swap-in packed-f", "order 0 run packed-f"));
  Up(1);
  EXPECT_THAT(SubmitTo(1, 5, "f"), ElementsAre("order 1 swap-in packed-f", "order 1 run packed-f"));
}

TEST_F(NamedGpus, AGpuThatIsNotThereIsNotObeyed) {
  EXPECT_THAT(SubmitTo(2, 1, "f"), ElementsAre("bounce 1 BOUNCE_NO_GPU"));
  EXPECT_THAT(SubmitTo(4'000'000'000, 2, "f"), ElementsAre("bounce 2 BOUNCE_NO_GPU"));
}

TEST_F(NamedGpus, AnIsolatedFunctionIsRefusedByName) {
  auto alone = Function("h");
  alone.set_isolation(proto::ISOLATION_FUNCTION);
  On(AdoptionAsked{1000, alone});
  On(CopyFetched{"model-h@function/h", absl::OkStatus()});
  proto::HostCopy copy;
  copy.set_digest("packed-h");
  copy.mutable_weights()->set_length(MiB(100).count());
  On(CopyPlaced{.copy = "model-h@function/h", .host = copy});
  EXPECT_THAT(SubmitTo(0, 1, "h"), ElementsAre("answer 1 FAILED_PRECONDITION"));
}

TEST_F(NamedGpus, GrantsTellOfTheGpusAndOnlyOfWhatHasChanged) {
  GpusToldTo(7);
  EXPECT_THAT(GpusToldTo(7), IsEmpty());
  EXPECT_THAT(SubmitTo(1, 1, "f").size(), 2u);
  EXPECT_THAT(GpusToldTo(7), ElementsAre("1 ready model-f"));  // it is coming
  EXPECT_THAT(Submit(2, "g", 8).size(), 2u);
  EXPECT_THAT(GpusToldTo(7), ElementsAre("0 ready model-g, others 1"));
  Answered(0, "swap-in");
  Answered(0, "run");
  EXPECT_THAT(GpusToldTo(7), ElementsAre("0 ready model-g"));
  Report(1, proto::ExecutorReport::DOWN);
  EXPECT_THAT(GpusToldTo(7), ElementsAre("1 gone"));
  Up(1);
  EXPECT_THAT(GpusToldTo(7), ElementsAre("1 ready"));
  EXPECT_THAT(GpusToldTo(8), IsEmpty());  // it names none
  // A router that says hello again may have lost everything.
  HelloOf(7, true);
  EXPECT_EQ(grants_[0].gpus_size(), 2);
  EXPECT_EQ(grants_[0].costs_size(), 2);
  HelloOf(8, false);
  EXPECT_EQ(grants_[0].gpus_size() + grants_[0].costs_size(), 0);
}

TEST_F(NamedGpus, WhatARunTookIsToldWithTheNextGrant) {
  GpusToldTo(7);
  SubmitTo(0, 1, "f");
  proto::WorkerOutcome swapped;
  swapped.set_bytes(MiB(100).count());
  swapped.set_end_ns(std::chrono::nanoseconds(milliseconds(400)).count());
  Answered(0, "swap-in", swapped);
  proto::WorkerOutcome ran;
  ran.set_begin_ns(std::chrono::nanoseconds(milliseconds(400)).count());
  ran.set_end_ns(std::chrono::nanoseconds(milliseconds(430)).count());
  ran.mutable_run()->set_last_group_ns(1);  // it waited for weights
  Answered(0, "run", ran);
  GpusToldTo(7);
  ASSERT_EQ(grants_[7].costs_size(), 1);
  EXPECT_EQ(grants_[7].costs(0).digest(), "model-f");
  EXPECT_EQ(grants_[7].costs(0).load_ns(), std::chrono::nanoseconds(milliseconds(400)).count());
  EXPECT_EQ(grants_[7].costs(0).bytes(), MiB(100).count());
  // The run with its load took 430 ms: a run that finds its model is thought to take what is left of that.
  EXPECT_EQ(grants_[7].costs(0).run_ns(), std::chrono::nanoseconds(milliseconds(30)).count());
  GpusToldTo(7);
  EXPECT_EQ(grants_[7].costs_size(), 0);
}

class Isolated : public NamedGpus {
 protected:
  static NodeSettings IsolatedSettings() {
    auto settings = Settings(2);
    settings.isolation = {.mode = proto::ISOLATION_TENANT, .runtimes = 1};
    settings.scheduler.isolated = true;
    return settings;
  }
  Isolated() : NamedGpus(IsolatedSettings(), false) {}
};

TEST_F(NamedGpus, AGrantNamesTheModelThatWentAndNoOther) {
  now += milliseconds(20);
  Watch(TimerFired{Timer::kGrant});
  grants_.clear();
  On(ModelDisowned{"model-f"});
  now += milliseconds(20);
  Watch(TimerFired{Timer::kGrant});
  for (const std::uint64_t router : {7U, 8U}) {
    const auto& adopted = grants_[router].adopted();
    EXPECT_TRUE(adopted.added()) << "the list does not replace what was told before";
    EXPECT_THAT(adopted.removed(), ElementsAre("model-f"));
    EXPECT_THAT(adopted.digests(), IsEmpty()) << "model g is as it was told before";
  }
}

TEST_F(Isolated, ANodeWithIsolatedRuntimesSaysWhyItTellsOfNoGpus) {
  HelloOf(7, true);
  EXPECT_EQ(grants_[0].gpus_size(), 0);
  EXPECT_THAT(grants_[0].gpus_withheld(), testing::HasSubstr("isolated runtimes"));
}

TEST(NamedGpusPolicies, APolicyThatDecidesGpuByGpuIsRefusedWithIsolatedRuntimes) {
  for (const char* preset : {"lalb", "lalb-o3"}) {
    const auto names = *FindPreset(preset);
    const auto policies = *FindSchedulerPolicies(names);
    EXPECT_TRUE(CheckIsolation(names, policies, false).ok());
    const auto refused = CheckIsolation(names, policies, true);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(preset));
  }
  const auto names = *FindPreset("torpor");
  EXPECT_TRUE(CheckIsolation(names, *FindSchedulerPolicies(names), true).ok());
}

}  // namespace
}  // namespace troupe::node::named_gpus_test
