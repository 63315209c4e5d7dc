#include "gpu/worker/run_memory.hpp"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/worker/residency.hpp"
#include "gpu/worker/run_kept.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

proto::WorkerOutcome RunMemory::NoFit() const {
  return NoFitOutcome(memory_);
}

RunMemory::Wish RunMemory::WishOf(const Run& run) {
  return {run.plan->activation_bytes(), run.sm_percent};
}

std::uint32_t RunMemory::StagedPercentOf(const Run& run, bool ahead) const {
  const auto found = staged_plans_.find({run.plan.get(), ahead});
  return found == staged_plans_.end() ? 0 : found->second.percent;
}

// What a run takes beside the weights.
Bytes RunMemory::BytesOf(const Run& run) {
  return RunLayout(run).total + run.plan->activation_bytes();
}

absl::StatusOr<bool> RunMemory::FunctionHasRoom(const Run& run, Bytes weights) const {
  const Bytes limit(run.request.order.sharing().gpu_mem());
  if (limit == Bytes(0)) return true;
  const Bytes state = run.state == nullptr ? Bytes(0) : run.state->size();
  const Bytes alone = weights + state + BytesOf(run);
  if (alone > limit) {
    return absl::FailedPreconditionError(absl::StrCat(
        "function '", run.request.order.function(), "' may take ", FormatBytes(limit),
        " of device memory (gpu_mem), and a run of this size takes ", FormatBytes(BytesOf(run)), " beside ",
        FormatBytes(weights + state), " of weights and state; raise gpu_mem or send a smaller batch"));
  }
  const auto used = of_functions_.find(run.request.order.function());
  return used == of_functions_.end() || alone + used->second <= limit;
}

void RunMemory::Stage(const Run& run) {
  const bool ahead = run.load != nullptr;
  ++on_device_;
  if (run.request.order.sharing().gpu_mem() > 0) of_functions_[run.request.order.function()] += BytesOf(run);
  for (Staged* staged : {ahead ? &staged_ahead_ : &staged_, &staged_plans_[{run.plan.get(), ahead}]}) {
    ++staged->runs;
    staged->percent += run.sm_percent;
  }
  staged_wishes_.insert(WishOf(run));
  Promise();
}

void RunMemory::Unstage(const Run& run) {
  const bool ahead = run.load != nullptr;
  const auto found = staged_plans_.find({run.plan.get(), ahead});
  for (Staged* staged : {ahead ? &staged_ahead_ : &staged_, &found->second}) {
    --staged->runs;
    staged->percent -= run.sm_percent;
  }
  if (found->second.runs == 0) staged_plans_.erase(found);
  staged_wishes_.erase(staged_wishes_.find(WishOf(run)));
  Promise();
}

// When as many runs compute as have room on the SMs, they hold the activations of so many runs: of those that
// compute, of staged ones, and of `candidate`, which is about to be staged. Those are counted that take most.
// A run that needs no more than a run that computes has its place where that run ends.
void RunMemory::Promise(Wish candidate) {
  std::vector<Wish> wanted;
  Bytes held;
  Bytes longest_held;
  for (const Run* run : computing_) {
    wanted.push_back({run->activations->size, run->sm_percent});
    held += run->activations->size;
    longest_held = std::max(longest_held, run->activations->size);
  }
  Bytes longest = candidate.activations;
  if (!staged_wishes_.empty()) longest = std::max(longest, staged_wishes_.rbegin()->activations);
  wanted.insert(wanted.end(), staged_wishes_.begin(), staged_wishes_.end());
  wanted.push_back(candidate);
  std::ranges::sort(wanted, std::greater<>());
  Bytes most;
  std::uint32_t percent = 0;
  for (const Wish& wish : wanted) {
    if (percent >= percent_) break;
    most += wish.activations;
    percent += wish.percent;
  }
  memory_.Promise(most > held ? most - held : Bytes(0), longest > longest_held ? longest : Bytes(0));
}

absl::StatusOr<DeviceRange> RunMemory::Allocate(const Run& run, Bytes size) {
  const MemoryUser user{MemoryUser::Kind::kRun, run.request.order.digest()};
  absl::StatusOr<DeviceRange> range = memory_.Allocate(user, size);
  // What is given back need not lie together.
  while (!range.ok() && tensors_.MakeRoom(size) > Bytes(0)) range = memory_.Allocate(user, size);
  return range;
}

absl::Status RunMemory::Take(Run& run) {
  ReserveKept(tensors_, run, transport::kInlineLimit);
  const absl::Status taken = TakeBlock(run);
  if (!taken.ok()) SettleKept(tensors_, run, false);
  return taken;
}

absl::Status RunMemory::TakeBlock(Run& run) {
  const RunLayout layout(run);
  const Bytes activations = run.plan->activation_bytes();
  TROUPE_ASSIGN_OR_RETURN(run.block, Allocate(run, layout.total));
  if (run.by_layer) {
    const absl::StatusOr<DeviceRange> window = Allocate(run, WindowOf(run)->size);
    if (!window.ok()) {
      memory_.Free(run.block);
      return window.status();
    }
    run.window = *window;
  }
  Promise(WishOf(run));
  while (!memory_.KeepsPromise() && tensors_.MakeRoom(activations) > Bytes(0)) {
  }
  if (!memory_.KeepsPromise()) {
    FreeWindow(run);
    memory_.Free(run.block);
    Promise();
    return absl::ResourceExhaustedError(
        absl::StrCat(FormatBytes(layout.total), " for inputs and outputs would leave no range of ",
                     FormatBytes(activations), " for what the run computes between"));
  }
  memory_.pool().Planned(run.request.order.digest(), layout.total + activations);
  layout.Bind(run.block, run.arguments);
  return absl::OkStatus();
}

void RunMemory::GiveBack(Run& run) {
  FreeWindow(run);
  memory_.Free(run.block);
  SettleKept(tensors_, run, false);
  Promise();
}

absl::Status RunMemory::TakeActivations(Run& run) {
  TROUPE_ASSIGN_OR_RETURN(run.activations, Allocate(run, run.plan->activation_bytes()));
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

void RunMemory::Free(Run& run, bool keeps) {
  if (const auto used = of_functions_.find(run.request.order.function());
      used != of_functions_.end() && run.request.order.sharing().gpu_mem() > 0) {
    used->second -= BytesOf(run);
    if (used->second == Bytes(0)) of_functions_.erase(used);
  }
  FreeActivations(run);
  FreeWindow(run);
  memory_.Free(run.block);
  SettleKept(tensors_, run, keeps);
  --on_device_;
}

}  // namespace troupe::gpu
