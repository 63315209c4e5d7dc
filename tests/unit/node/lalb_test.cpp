// LALB (003): its queue in both forms, and the decisions of the scheduler with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "base/random.hpp"
#include "node/scheduling/locality_queue.hpp"
#include "node/scheduling/swap_scheduler.hpp"
#include "tests/unit/node/numbered.hpp"

namespace troupe::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

OrderingKey Key(std::uint64_t sequence) {
  return {.sequence = sequence};
}

// A queue and the log of its decisions: every request has a model, and in each turn a GPU has some of them.
class Driven {
 public:
  explicit Driven(LocalityRules rules) : queue_(MakeLocalityQueue(rules)) {}

  void Add(std::uint64_t sequence, int model) {
    models_[Key(sequence)] = model;
    queue_->Add(Key(sequence));
  }
  // `places`: the answer of Algorithm 2 for a model.
  void Turn(const std::set<int>& cached, const std::function<LocalityPlace(int)>& places) {
    const auto has = [&](const OrderingKey& key) { return cached.contains(models_.at(key)); };
    const auto first_hit = [&]() -> std::optional<OrderingKey> {
      for (const auto& [key, model] : models_)
        if (has(key)) return key;
      return std::nullopt;
    };
    const auto place = [&](const OrderingKey& key) {
      const auto where = places(models_.at(key));
      log.emplace_back(key.sequence, static_cast<int>(where));
      if (where != LocalityPlace::kNowhere) Remove(key);
      return where;
    };
    const LocalityTurn turn{.has = has, .first_hit = first_hit, .place = place};
    if (const auto hit = queue_->Turn(turn)) {
      log.emplace_back(hit->sequence, -1);
      Remove(*hit);
    }
  }
  [[nodiscard]] std::size_t size() const { return queue_->size(); }
  std::vector<std::pair<std::uint64_t, int>> log;  // request, and -1 (a hit) or the GPU where it was placed

 private:
  void Remove(const OrderingKey& key) {
    queue_->Remove(key);
    models_.erase(key);
  }
  std::unique_ptr<LocalityQueue> queue_;
  std::map<OrderingKey, int> models_;
};

TEST(Lalb, BothFormsOfTheQueueDecideTheSame) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const auto limit = static_cast<std::uint32_t>(random.Below(4));
    Driven printed({.limit = limit, .printed = true});
    Driven indexed({.limit = limit});
    std::uint64_t sequence = 0;
    for (int step = 0; step < 200; ++step) {
      for (auto n = random.Below(3); n > 0; --n) {
        const auto model = static_cast<int>(random.Below(8));
        ++sequence;
        printed.Add(sequence, model);
        indexed.Add(sequence, model);
      }
      std::set<int> cached;
      for (auto n = random.Below(3); n > 0; --n) cached.insert(static_cast<int>(random.Below(8)));
      const auto salt = random();
      const auto places = [salt](int model) { return static_cast<LocalityPlace>((salt >> (4 * model)) % 3); };
      printed.Turn(cached, places);
      indexed.Turn(cached, places);
      ASSERT_EQ(printed.log, indexed.log) << "seed " << seed << ", step " << step;
      ASSERT_EQ(printed.size(), indexed.size());
    }
    EXPECT_GT(printed.log.size(), 50u);
  }
}

TEST(Lalb, ARequestIsPassedOnceMoreThanTheLimitSays) {
  Driven queue({.limit = 2});
  queue.Add(1, 0);
  for (std::uint64_t turn = 0; turn < 5; ++turn) queue.Add(2 + turn, 7);
  const auto here = [](int) { return LocalityPlace::kHere; };
  for (int turn = 0; turn < 4; ++turn) queue.Turn({7}, here);
  // 'Visits higher than the limit': a request that was passed three times is placed before the hit.
  EXPECT_EQ(queue.log, (std::vector<std::pair<std::uint64_t, int>>{{2, -1}, {3, -1}, {4, -1}, {1, 2}}));
}

// Two GPUs and the policy's own decisions; the test gives the workers' answers.
class Lalb2Gpus : public testing::Test {
 protected:
  explicit Lalb2Gpus(const char* preset = "lalb-o3")
      : scheduler_({}, *FindSchedulerPolicies(*FindPreset(preset))) {
    for (GpuIndex gpu = 0; gpu < 2; ++gpu) {
      scheduler_.AddGpu(gpu, GiB(1));
      scheduler_.Apply(WorkerReady{.gpu = gpu, .memory = GiB(1), .free = GiB(1)}, now_);
    }
    for (const char* model : {"a", "b", "c"}) scheduler_.DescribeModel(ModelNamed(model), MiB(600), Bytes());
  }

  RequestId Ask(const std::string& model) {
    const RequestId id{1, ++sequence_};
    EXPECT_TRUE(
        scheduler_.Submit({.id = id, .function = FunctionNamed(model), .model = ModelNamed(model)}, now_)
            .accepted);
    return id;
  }
  std::vector<Dispatch> Decide() {
    auto dispatches = scheduler_.Decide(now_).dispatches;
    scheduler_.Check();
    return dispatches;
  }
  void End(const Dispatch& dispatch, Duration load = seconds(3), Duration run = seconds(1)) {
    if (dispatch.source == SwapSource::kHost) {
      for (const auto& victim : dispatch.victims)
        scheduler_.Apply(EvictDone{dispatch.gpu, victim, absl::OkStatus()}, now_);
      now_ += load;
      scheduler_.Apply(SwapInDone{dispatch.gpu, dispatch.model, absl::OkStatus(), MiB(600), load}, now_);
    }
    now_ += run;
    scheduler_.Apply(RunDone{.gpu = dispatch.gpu, .request = dispatch.request, .took = run}, now_);
  }

  SwapScheduler scheduler_;
  Time now_{};
  std::uint64_t sequence_ = 0;
};

TEST_F(Lalb2Gpus, ABusyGpusOwnQueueIsTakenWhereThatIsSooner) {
  Ask("a");
  auto first = Decide();
  ASSERT_EQ(first.size(), 1u);
  End(first[0]);
  // Model a runs for a second and a load would take three: the second request waits at that GPU, though the
  // other is idle.
  Ask("a");
  Ask("a");
  auto both = Decide();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].gpu, first[0].gpu);
  EXPECT_EQ(both[1].gpu, first[0].gpu);
  EXPECT_EQ(both[1].source, SwapSource::kResident);
  // That GPU has four seconds of work, so the next request is loaded on the other GPU.
  Ask("a");
  Ask("a");
  const auto more = Decide();
  ASSERT_EQ(more.size(), 2u);
  EXPECT_EQ(more[0].gpu, first[0].gpu);
  EXPECT_NE(more[1].gpu, first[0].gpu);
  EXPECT_EQ(more[1].source, SwapSource::kHost);
}

TEST_F(Lalb2Gpus, AnIdleGpuTakesALaterRequestThatItHas) {
  Ask("a");
  Ask("b");
  const auto two = Decide();
  ASSERT_EQ(two.size(), 2u);
  Ask("c");
  const auto b = Ask("b");
  EXPECT_TRUE(Decide().empty()) << "no GPU is idle";
  End(two[1]);
  const auto next = Decide();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].request, b);
}

class LoadBalance2Gpus : public Lalb2Gpus {
 protected:
  LoadBalance2Gpus() : Lalb2Gpus("load-balance") {}
};

TEST_F(LoadBalance2Gpus, TheHeadGoesToWhicheverGpuIsIdle) {
  Ask("a");
  Ask("b");
  const auto two = Decide();
  ASSERT_EQ(two.size(), 2u);
  const auto c = Ask("c");
  Ask("b");
  EXPECT_TRUE(Decide().empty()) << "no request waits at a GPU";
  End(two[1]);  // the request on the GPU with b
  const auto next = Decide();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].request, c);
  EXPECT_EQ(next[0].gpu, two[1].gpu);
  EXPECT_THAT(next[0].victims, testing::ElementsAre("b"));
}

TEST(LalbPolicies, TheLimitIsPartOfTheName) {
  EXPECT_EQ(FindGpuPolicy("lalb-o3")->locality->limit, 25u);
  EXPECT_EQ(FindGpuPolicy("lalb")->locality->limit, 0u);
  EXPECT_EQ(FindGpuPolicy("lalb-o3=45")->locality->limit, 45u);
  for (const char* wrong : {"lalb-o3=", "lalb-o3=-1", "lalb-o3=4x"})
    EXPECT_EQ(FindGpuPolicy(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
}

}  // namespace
}  // namespace troupe::node
