// Random arrivals, outcomes, deaths, cancellations, copies between GPUs and devices with less room than they
// say, by seed, for every combination of policies; a third of the models have a function with state.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/random.hpp"
#include "node/scheduling/swap_scheduler.hpp"
#include "tests/draws.hpp"
#include "tests/unit/node/fake_worker.hpp"

namespace troupe::node::swap_scheduler_property_test {
namespace {

using std::chrono::milliseconds;

class World {
 public:
  World(std::uint64_t seed, const PolicyNames& names)
      : random_(seed),
        scheduler_({.concurrency = 1 + static_cast<std::uint32_t>(seed % 3 == 0),
                    .swap_ahead = 1 + static_cast<std::uint32_t>(seed % 4),
                    .max_replans = 64,
                    .seed = seed,
                    .by_layer = seed % 2 == 0 ? ByLayer::kIdle : ByLayer::kOff,
                    .broadcast = seed % 4 == 0 ? BroadcastRule::kBurst : BroadcastRule::kOff},
                   *FindSchedulerPolicies(names), {}, *Topology::Parse(seed % 2 == 0 ? "v100x4" : "none")) {
    // The number of waiting requests is more than a decision looks at, or small.
    const std::uint64_t gpus = seed % 14 == 7 ? kAllGpus + 1 + random_.Below(8) : 1 + random_.Below(4);
    for (std::uint64_t i = 0; i < 12; ++i) {
      const std::string name = "model" + std::to_string(i);
      models_[name] = {.weights = MiB(10 + random_.Below(40)), .activation = MiB(1 + random_.Below(8))};
      scheduler_.DescribeModel(names_.Model(name), models_[name].weights, models_[name].activation);
      if (i % 3 != 0) continue;
      const std::string state = "state" + std::to_string(i);
      host_.model[state] = name;
      scheduler_.DeclareState(names_.State(state), names_.Model(name), host_.bytes);
    }
    host_.write_back_each = seed % 2 == 0;
    if (seed % 3 != 0) slow_ = 1000;  // runs are said to take so long that copies are worth having
    for (GpuIndex gpu = 0; gpu < gpus; ++gpu) {
      scheduler_.AddGpu(gpu, MiB(100));
      workers_.push_back(nullptr);
      lives_.push_back(0);
      hidden_.push_back(MiB(random_.Below(3) == 0 ? random_.Below(40) : 0));
      StartWorker(gpu);
    }
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ += Duration(random_.Below(2'000'000));
      Event();
      Settle();
    }
  }
  // No new requests come and workers are healthy: every request must end, though a decision is made only when something
  // has happened, or when the last decision has said that another one is due.
  void Drain() {
    for (GpuIndex gpu = 0; gpu < workers_.size(); ++gpu) {
      if (workers_[gpu] == nullptr) StartWorker(gpu);
    }
    Settle();
    for (int i = 0; i < 100000 && !open_.empty(); ++i) {
      now_ += milliseconds(1);
      const bool nothing_under_way = std::ranges::all_of(workers_, &FakeWorker::idle);
      if (nothing_under_way) {
        ASSERT_NE(due_, Time::max()) << open_.size() << " requests wait for an event that will not come";
        now_ = std::max(now_, due_);
        Handle(scheduler_.Expire(now_));
        Settle();
      }
      for (GpuIndex gpu = 0; gpu < workers_.size(); ++gpu) {
        if (workers_[gpu]->idle()) continue;
        StepWorker(gpu, absl::OkStatus());
        Settle();
      }
    }
    FinishCopies();
    EXPECT_TRUE(open_.empty()) << open_.size() << " requests wait for ever";
    EXPECT_EQ(scheduler_.waiting() + scheduler_.in_flight(), 0u);
    // The accounting is right: the plan's models are on the device, and nothing is reserved or locked any
    // more.
    for (const auto& [index, gpu] : scheduler_.gpus().gpus()) {
      EXPECT_EQ(gpu.promised, Bytes());
      EXPECT_TRUE(gpu.host_loads.empty() && gpu.evicting.empty());
      Bytes there;
      for (const auto& [model, there_is] : scheduler_.ResidentsOf(index)) {
        const Resident& resident = *there_is;
        EXPECT_TRUE((resident.Idle() || !resident.stay.over()) && resident.pins == 0) << model.text();
        EXPECT_TRUE(workers_[index]->Has(model.text())) << model.text();
        there += models_.at(model.text()).weights + host_.bytes * resident.states.size();
      }
      EXPECT_EQ(there + hidden_[index], workers_[index]->used());
    }
  }
  // All models and states go: no number is left but those of functions whose requests are counted for their SLO.
  void Forget() {
    healthy_ = true;
    for (const auto& [state, model] : host_.model) Handle(scheduler_.ForgetState(names_.FindState(state)));
    for (const auto& [model, size] : models_) Handle(scheduler_.ForgetModel(names_.FindModel(model)));
    FinishCopies();
    Settle();
    EXPECT_EQ(scheduler_.rows(), 0u);
    std::size_t counted = 0;
    for (const auto& [state, model] : host_.model) counted += names_.FindFunction(state) ? 1 : 0;
    for (const auto& [model, size] : models_) counted += names_.FindFunction(model) ? 1 : 0;
    EXPECT_EQ(names_.size(), counted);
  }
  const SwapScheduler& scheduler() const { return scheduler_; }
  std::uint64_t served = 0;
  std::uint64_t advanced = 0;  // runs with state
  std::uint64_t moved = 0;     // states that came back to a GPU
  std::uint64_t stayed = 0;    // models whose states could not be written back

 private:
  void Event() {
    switch (random_.Below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Arrive();
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
        return StepWorker(random_.Below(workers_.size()),
                          random_.Below(20) == 0 ? absl::InternalError("bad") : absl::OkStatus());
      case 9:
        return CancelOne();
      case 10:
        if (random_.Below(8) == 0) KillOrStart(random_.Below(workers_.size()));
        return;
      default:
        Handle(scheduler_.Expire(now_));
        return;
    }
  }
  void Arrive() {
    NodeRequest request;
    request.id = {1 + random_.Below(2), next_++};
    const std::string number = std::to_string(random_.Below(models_.size()));
    request.model = names_.Model("model" + number);
    request.function = names_.Function("model" + number);
    if (const std::string state = "state" + number; host_.model.contains(state) && random_.Below(2) == 0) {
      request.state = names_.State(state);
      request.function = names_.Function(state);
    }
    request.priority = static_cast<std::uint32_t>(random_.Below(3));
    request.deadline = now_ + milliseconds(random_.Below(100));
    request.percentile = random_.Below(2) == 0 ? 0 : 90;
    if (random_.Below(4) == 0) request.expiry = now_ + milliseconds(1 + random_.Below(50));
    const Submitted submitted = scheduler_.Submit(request, now_);
    for (const Eviction& eviction : submitted.evictions)
      workers_[eviction.gpu]->OrderEviction(eviction.model);
    if (!submitted.accepted) return;
    open_.insert(request.id);
    if (request.state) lines_[request.state.text()].push_back(request.id);
  }
  void StartWorker(GpuIndex gpu) {
    ++lives_[gpu];
    workers_[gpu] = std::make_unique<FakeWorker>(
        gpu, MiB(100), hidden_[gpu], models_,
        [this](const Dispatch& dispatch) -> const FakeWorker* {
          const bool same = lives_[dispatch.peer] == source_lives_.at(dispatch.request);
          return same ? workers_[dispatch.peer].get() : nullptr;
        },
        &host_);
    if (!host_.write_back_each)
      workers_[gpu]->WriteBackFails([this] { return !healthy_ && random_.Below(3) == 0 && ++stayed > 0; });
    WorkerReady ready = workers_[gpu]->Ready();
    ready.free = MiB(100);  // the worker does not report the rest
    Handle(scheduler_.Apply(ready, now_));
  }
  void KillOrStart(GpuIndex gpu) {
    if (workers_[gpu] == nullptr) return StartWorker(gpu);
    // The worker's states that were not written back are lost with it.
    for (const auto& [state, runs] : workers_[gpu]->states())
      if (scheduler_.states().Find(names_.FindState(state))->CurrentAt(gpu))
        truth_[state] = host_.images[state];
    workers_[gpu] = nullptr;
    Handle(scheduler_.Apply(WorkerLost{gpu, "killed"}, now_));
  }
  void CancelOne() {
    if (open_.empty()) return;
    auto it = open_.begin();
    std::advance(it, random_.Below(open_.size()));
    const Cancelled cancelled = scheduler_.Cancel(*it);
    ASSERT_NE(cancelled.verdict, CancelVerdict::kUnknown);
    if (cancelled.verdict == CancelVerdict::kCancelled) Finish(cancelled.finished);
  }
  void StepWorker(GpuIndex gpu, const absl::Status& status) {
    if (workers_[gpu] == nullptr) return;
    const auto out = workers_[gpu]->Step(milliseconds(1 + random_.Below(5)) * slow_, status);
    SeeState(gpu, out);
    EXPECT_FALSE(workers_[gpu]->overbooked());
    EXPECT_EQ(workers_[gpu]->broken_promises(), 0u);
    for (const auto& done : out.evicted) Handle(scheduler_.Apply(done, now_));
    for (const auto& done : out.swapped) Handle(scheduler_.Apply(done, now_));
    for (const auto& done : out.ran) Handle(scheduler_.Apply(done, now_));
    for (const auto& done : out.stayed) Handle(scheduler_.Apply(done, now_));
  }
  // A successful run found the state that its predecessor left.
  void SeeState(GpuIndex gpu, const FakeWorker::Outcomes& out) {
    for (const RunDone& done : out.ran) {
      const auto state = dispatched_.find(done.request);
      if (state == dispatched_.end() || done.end != RunEnd::kRan || !done.status.ok()) continue;
      EXPECT_EQ(workers_[gpu]->states().at(state->second), ++truth_[state->second]);
      ++advanced;
    }
  }
  void Settle() {
    scheduler_.Check();
    const Decision decision = scheduler_.Decide(now_);
    due_ = decision.due;
    for (const Dispatch& dispatch : decision.dispatches) {
      EXPECT_TRUE(open_.contains(dispatch.request));
      ASSERT_NE(workers_[dispatch.gpu], nullptr) << "the request was dispatched to a dead worker";
      if (const std::string& state = dispatch.state.text(); !state.empty()) {
        EXPECT_EQ(lines_[state].front(), dispatch.request)
            << "the requests of a state run in the order of their acceptance";
        dispatched_[dispatch.request] = state;
        moved += dispatch.bring_state && truth_[state] > 0 ? 1 : 0;
      }
      if (dispatch.source == SwapSource::kPeer) source_lives_[dispatch.request] = lives_.at(dispatch.peer);
      workers_[dispatch.gpu]->Order(dispatch);
    }
    for (const Eviction& departure : decision.departures)
      workers_[departure.gpu]->OrderEviction(departure.model);
    for (const Dispatch& copy : decision.prefetches) {
      ASSERT_NE(workers_[copy.gpu], nullptr) << "a prefetch was ordered from a dead worker";
      EXPECT_TRUE(copy.ahead && !copy.state);
      workers_[copy.gpu]->Order(copy);
    }
    if (random_.Below(2) == 0) (void)scheduler_.CloseBroadcasts();
    scheduler_.Check();
  }
  // Models that no request waits for.
  void FinishCopies() {
    const auto busy = [](const auto& worker) { return !worker->idle(); };
    for (int i = 0; i < 1000 && std::ranges::any_of(workers_, busy); ++i) {
      for (GpuIndex gpu = 0; gpu < workers_.size(); ++gpu) StepWorker(gpu, absl::OkStatus());
      Settle();
    }
  }
  void Handle(const Consequences& effects) {
    for (const Finished& finished : effects.finished) Finish(finished);
    for (const Eviction& eviction : effects.evictions) workers_[eviction.gpu]->OrderEviction(eviction.model);
  }
  void Finish(const Finished& finished) {
    EXPECT_EQ(open_.erase(finished.id), 1u) << "a request ended twice, or never began";
    EXPECT_LE(finished.attempts, 3u);
    for (auto& [state, line] : lines_) std::erase(line, finished.id);
    served += finished.kind == FinishKind::kServed ? 1 : 0;
  }

  Random random_;
  Names names_;
  SwapScheduler scheduler_;
  std::map<std::string, FakeModel> models_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<Bytes> hidden_;
  std::vector<int> lives_;  // the number of workers that each GPU has had
  std::map<RequestId, int> source_lives_;
  std::set<RequestId> open_;
  FakeStates host_{.bytes = MiB(3), .write_back_each = true, .model = {}, .images = {}};
  std::map<std::string, std::uint64_t> truth_;           // runs of each state that count
  std::map<std::string, std::vector<RequestId>> lines_;  // requests that were accepted and have not ended
  std::map<RequestId, std::string> dispatched_;
  std::uint64_t next_ = 1;
  int slow_ = 1;
  bool healthy_ = false;  // each state can be written back
  Time now_{};
  Time due_ = Time::max();  // of the last decision
};

std::vector<PolicyNames> EveryCombination() {
  std::vector<PolicyNames> all;
  for (const auto& ordering : OrderingPolicies()) {
    for (const auto& gpu : GpuPolicies()) {
      for (const auto& eviction : EvictionPolicies()) {
        PolicyNames names;
        names.ordering = ordering.name;
        names.gpu = gpu.name;
        names.eviction = eviction.name;
        names.prefetch = "asked";
        all.push_back(names);
        names.prefetch = "forecast";
        all.push_back(names);
        if (!gpu.policy.early_binding) continue;
        for (const char* binding : {"fixed", "keep-alive"}) {
          names.binding = binding;
          all.push_back(names);
        }
      }
    }
  }
  return all;
}

TEST(SwapSchedulerProperty, EveryRequestEndsOnceAndMemoryIsNeverBookedTwice) {
  std::uint64_t served = 0;
  std::uint64_t from_peers = 0;
  std::uint64_t advanced = 0;
  std::uint64_t moved = 0;
  std::uint64_t ahead = 0;
  std::uint64_t stayed = 0;
  std::uint64_t seed = 0;
  for (const PolicyNames& names : EveryCombination()) {
    SCOPED_TRACE("seed " + std::to_string(++seed) + ", " + names.ordering + ", " + names.gpu + ", " +
                 names.eviction + ", " + names.prefetch + ", " + names.binding);
    World world(seed, names);
    for (int part = 0; part < 4; ++part) {
      world.Run(test::Draws(150));
      world.Drain();
    }
    served += world.served;
    advanced += world.advanced;
    moved += world.moved;
    stayed += world.stayed;
    const SchedulerCounts& counts = world.scheduler().counts();
    EXPECT_EQ(counts.accepted,
              counts.served + counts.failed + counts.expired + counts.cancelled + counts.bounced);
    EXPECT_EQ(counts.evictions, counts.evicted_replicas + counts.evicted_light + counts.evicted_heavy);
    from_peers += counts.peer_swaps;
    ahead += counts.ahead;
    world.Forget();
    if (HasFailure()) return;
  }
  EXPECT_GT(served, test::Draws(5000u));
  EXPECT_GT(from_peers, test::Draws(100u));
  EXPECT_GT(advanced, test::Draws(500u));
  EXPECT_GT(moved, test::Draws(100u));
  EXPECT_GT(ahead, test::Draws(20u));
  EXPECT_GT(stayed, test::Draws(100u));
}

// A late request whose turn comes gets another key while a GPU's turn goes through the keys.
TEST(SwapSchedulerProperty, LateRequestsYieldWhereDecisionsAreMadeByGpu) {
  for (const char* gpu : {"lalb", "lalb-o3", "lalb-o3-printed"}) {
    for (std::uint64_t seed = 2160; seed < 2160 + test::Draws(30u); ++seed) {  // seed 2160 found an error
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + gpu);
      PolicyNames names;
      names.gpu = gpu;
      World world(seed, names);
      world.Run(600);
      world.Drain();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace troupe::node::swap_scheduler_property_test
