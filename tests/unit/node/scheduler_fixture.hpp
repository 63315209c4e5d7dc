// A swap scheduler, with the events that a test gives it in place of GPUs and callers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "node/scheduling/swap_scheduler.hpp"
#include "tests/unit/node/numbered.hpp"

namespace troupe::node {

// A scheduler of GPUs of 100 MiB. The orders of a dispatch are done when the test says so; time stands still
// unless the test moves it.
// The default policies except for one slot.
inline SchedulerPolicies PoliciesWith(std::string PolicyNames::*slot, const char* name) {
  PolicyNames names;
  names.*slot = name;
  return *FindSchedulerPolicies(names);
}

class SchedulerTest : public testing::Test {
 protected:
  explicit SchedulerTest(SchedulerLimits limits = {},
                         SchedulerPolicies policies = *FindSchedulerPolicies(PolicyNames()),
                         const char* topology = "none")
      : scheduler(limits, policies, {}, *Topology::Parse(topology)) {}

  void Gpus(GpuIndex count, bool peer_copies = true) {
    for (GpuIndex gpu = 0; gpu < count; ++gpu) {
      scheduler.AddGpu(gpu, MiB(100));
      Ready(gpu, peer_copies);
    }
  }
  void Ready(GpuIndex gpu, bool peer_copies = true) {
    scheduler.Apply(WorkerReady{.gpu = gpu, .memory = MiB(100), .free = MiB(100), .peer_copies = peer_copies},
                    now);
  }
  void Model(const std::string& name, std::uint64_t mib) {
    scheduler.DescribeModel(ModelNamed(name), MiB(mib), MiB(1));
  }
  void Submit(std::uint64_t sequence, const std::string& model, const std::string& function = {},
              const std::string& state = {}) {
    NodeRequest request;
    request.id = {1, sequence};
    request.function = FunctionNamed(function.empty() ? "f-" + model : function);
    request.model = ModelNamed(model);
    request.deadline = deadline;
    request.expiry = expiry;
    request.trial = trial;
    request.sm_percent = sm_percent;
    request.most_on_gpu = most_on_gpu;
    request.own_places = own_places;
    request.gpu_mem = gpu_mem;
    if (!state.empty()) request.state = StateNamed(state);
    ASSERT_TRUE(scheduler.Submit(request, now).accepted);
  }
  // The requests that were dispatched; models that come ahead of requests are added to `prefetches`.
  std::vector<Dispatch> Decide() {
    Decision decision = scheduler.Decide(now);
    for (Dispatch& prefetch : decision.prefetches) prefetches.push_back(std::move(prefetch));
    return std::move(decision.dispatches);
  }
  // Decides; one dispatch is expected.
  Dispatch Next() {
    const auto dispatches = Decide();
    EXPECT_EQ(dispatches.size(), 1u);
    scheduler.Check();
    return dispatches.empty() ? Dispatch{} : dispatches[0];
  }
  // The dispatch's victims are evicted and its model has been loaded, where it has to be.
  void Loaded(const Dispatch& dispatch, absl::Status status = absl::OkStatus()) {
    for (const auto& victim : dispatch.victims)
      scheduler.Apply(EvictDone{dispatch.gpu, victim, absl::OkStatus()}, now);
    if (dispatch.source == SwapSource::kResident || dispatch.source == SwapSource::kLayers) return;
    scheduler.Apply(SwapInDone{.gpu = dispatch.gpu,
                               .model = dispatch.model,
                               .status = status,
                               .took = std::chrono::milliseconds(5)},
                    now);
  }
  Consequences Ran(const Dispatch& dispatch, RunEnd end = RunEnd::kRan,
                   absl::Status status = absl::OkStatus()) {
    const Consequences effects = scheduler.Apply(RunDone{.gpu = dispatch.gpu,
                                                         .request = dispatch.request,
                                                         .end = end,
                                                         .status = status,
                                                         .took = std::chrono::milliseconds(1),
                                                         .free = free},
                                                 now);
    scheduler.Check();
    return effects;
  }
  void Serve(const Dispatch& dispatch) {
    Loaded(dispatch);
    EXPECT_EQ(Ran(dispatch).finished.at(0).kind, FinishKind::kServed);
  }

  SwapScheduler scheduler;
  Time now{};
  std::vector<Dispatch> prefetches;
  // What requests are submitted with, and what a worker without room reports.
  Time deadline = Time::max();
  Time expiry = Time::max();
  bool trial = false;
  std::uint32_t sm_percent = 100;
  std::uint32_t most_on_gpu = 0;
  bool own_places = false;
  Bytes gpu_mem{};
  Bytes free{};
};

}  // namespace troupe::node
