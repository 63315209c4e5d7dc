#include "gpu/worker/run_memory.hpp"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/worker/residency.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

proto::WorkerOutcome RunMemory::NoFit() const {
  return NoFitOutcome(memory_);
}

// Runs of one plan compute one after the other: they leave room for others that could compute beside them.
std::size_t RunMemory::StagedOf(const Run& run, bool ahead) const {
  const auto found = staged_plans_.find({run.plan.get(), ahead});
  return found == staged_plans_.end() ? 0 : found->second;
}

void RunMemory::Stage(const Run& run) {
  ++on_device_;
  ++(run.load != nullptr ? staged_ahead_ : staged_);
  ++staged_plans_[{run.plan.get(), run.load != nullptr}];
  staged_activations_.insert(run.plan->activation_bytes());
  Promise();
}

void RunMemory::Unstage(const Run& run) {
  --(run.load != nullptr ? staged_ahead_ : staged_);
  const auto found = staged_plans_.find({run.plan.get(), run.load != nullptr});
  if (--found->second == 0) staged_plans_.erase(found);
  staged_activations_.erase(staged_activations_.find(run.plan->activation_bytes()));
  Promise();
}

// When every slot computes, they hold the activations of as many runs as there are slots. The runs that may
// do so are the runs that compute, the staged runs, and `candidate`, which is about to be staged. A run that
// needs no more than a run that computes has its place where that run ends.
void RunMemory::Promise(Bytes candidate) {
  std::vector<Bytes> wanted;
  Bytes held;
  Bytes longest_held;
  for (const Run* run : computing_) {
    wanted.push_back(run->activations->size);
    held += wanted.back();
    longest_held = std::max(longest_held, wanted.back());
  }
  Bytes longest = candidate;
  if (!staged_activations_.empty()) longest = std::max(longest, *staged_activations_.rbegin());
  auto staged = staged_activations_.rbegin();
  for (std::size_t i = 0; i < slots_ && staged != staged_activations_.rend(); ++i, ++staged)
    wanted.push_back(*staged);
  wanted.push_back(candidate);
  std::ranges::sort(wanted, std::greater<>());
  Bytes most;
  for (std::size_t i = 0; i < std::min(slots_, wanted.size()); ++i) most += wanted[i];
  memory_.Promise(most - held, longest > longest_held ? longest : Bytes(0));
}

absl::Status RunMemory::Take(Run& run) {
  const RunLayout layout(run);
  const Bytes activations = run.plan->activation_bytes();
  const MemoryUser user{MemoryUser::Kind::kRun, run.request.order.digest()};
  TROUPE_ASSIGN_OR_RETURN(run.block, memory_.Allocate(user, layout.total));
  if (run.by_layer) {
    const absl::StatusOr<DeviceRange> window = memory_.Allocate(user, WindowOf(run)->size);
    if (!window.ok()) {
      memory_.Free(run.block);
      return window.status();
    }
    run.window = *window;
  }
  Promise(activations);
  if (!memory_.KeepsPromise()) {
    GiveBack(run);
    return absl::ResourceExhaustedError(
        absl::StrCat(FormatBytes(layout.total), " for inputs and outputs would leave no range of ",
                     FormatBytes(activations), " for what the run computes between"));
  }
  memory_.pool().Planned(user.digest, layout.total + activations);
  layout.Bind(run.block, run.arguments);
  return absl::OkStatus();
}

void RunMemory::GiveBack(Run& run) {
  FreeWindow(run);
  memory_.Free(run.block);
  Promise();
}

absl::Status RunMemory::TakeActivations(Run& run) {
  TROUPE_ASSIGN_OR_RETURN(
      run.activations,
      memory_.Allocate({MemoryUser::Kind::kRun, run.request.order.digest()}, run.plan->activation_bytes()));
  run.arguments.activations = *run.activations;
  computing_.push_back(&run);
  const RunNeeds::Needs& needs = needs_.Of(run.plan);
  RunPool& pool = memory_.pool();
  run.pool = pool.Began(needs.profile, SteadyNow());
  pool.Follow(SteadyNow());
  std::set<std::size_t> marks;
  for (const RunNeeds::Trim& trim : needs.trims) marks.insert(trim.step);
  if (run.layers != nullptr) {
    for (const std::size_t step : run.layers->Marks()) marks.insert(step);
  }
  run.arguments.marks.assign(marks.begin(), marks.end());
  return absl::OkStatus();
}

void RunMemory::Reached(Run& run, std::size_t step) {
  memory_.Trim(*run.activations, run.plan->activation_extent(step));
  memory_.pool().Reached(*run.pool, step, SteadyNow());
  memory_.pool().Follow(SteadyNow());
  Promise();
}

void RunMemory::FreeActivations(Run& run) {
  if (!run.activations) return;
  std::erase(computing_, &run);
  memory_.Free(*std::exchange(run.activations, std::nullopt));
  memory_.pool().Ended(*std::exchange(run.pool, std::nullopt));
  memory_.pool().Follow(SteadyNow());
  Promise();
}

void RunMemory::FreeWindow(Run& run) {
  if (run.window) memory_.Free(*std::exchange(run.window, std::nullopt));
}

void RunMemory::Free(Run& run) {
  FreeActivations(run);
  FreeWindow(run);
  memory_.Free(run.block);
  --on_device_;
}

}  // namespace troupe::gpu
