// The node controller: whom its runtimes serve, and the copies of models that each of them needs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"
#include "node/runtimes/isolation.hpp"

namespace troupe::actors {

namespace {

std::string KeyName(bool assigned, const std::string& key) {
  if (!assigned) return "nobody";
  return key.empty() ? "shared functions" : key;
}

}  // namespace

std::string NodeController::Label(node::GpuIndex gpu) const {
  const auto runtimes = options_.isolation.runtimes;
  if (runtimes == 1) return absl::StrCat("GPU ", gpu);
  return absl::StrCat("GPU ", gpu / runtimes, ", runtime ", gpu % runtimes);
}

// A new function's adoption may come before the news of it, and its first request before both.
const proto::FunctionRecord* NodeController::FunctionOf(const proto::SubmitRequest& request) const {
  const auto digest = node::DigestOf(request.model_digest());  // a trial names the copy
  const auto* function = view_.functions().Find(request.function());
  if (function != nullptr && function->model_digest() == digest) return function;
  return models_.FunctionOf(digest, request.function().name());
}

absl::StatusOr<std::string> NodeController::CopyFor(const proto::SubmitRequest& request) {
  const auto* function = FunctionOf(request);
  if (function == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("this node has not heard of function '", request.function().name(), "' yet"));
  }
  // Its adoption came before the news of it, which say where its state is.
  if (!function->state().empty() && declared_.Find(request.function()) == nullptr) {
    return absl::NotFoundError(absl::StrCat("this node has not heard of the state of function '",
                                            request.function().name(), "' yet"));
  }
  const auto key = node::IsolationKey(*function, options_.isolation.mode, request.workflow());
  const auto copy = node::CopyName(request.model_digest(), key);
  if (!scheduler_.Knows(copy)) OpenCopy(copy, *function);
  return copy;
}

// The model is adopted for others: for this key it is as one that is on disk only, and comes when it is
// needed.
void NodeController::OpenCopy(const std::string& copy, const proto::FunctionRecord& function) {
  const auto digest = node::DigestOf(copy);
  const auto* other = models_.AdoptedCopyOf(digest);
  if (other == nullptr || models_.Find(copy) != nullptr) return;
  const Bytes weights(other->copy.weights().length());
  auto& model = models_.Hold(copy);
  model.function = function;
  if (!copies_.Want(copy, RegionBytesOf(function)).ok()) {
    static_cast<void>(models_.GiveUp(copy));
    return models_.Forget(copy);
  }
  model.adopted = true;
  copies_.Adopted(copy);
  DescribeCopy(copy, weights, Bytes(0));
  scheduler_.SetInRegion(copy, copies_.Usable(copy));
}

void NodeController::Reassign(const node::Assignment& order) {
  auto& gpu = gpus_[order.gpu];
  const auto to = KeyName(order.assigned, order.key);
  if (order.fresh) {
    Note("runtime-reclaimed",
         absl::StrCat(Label(order.gpu), ": from ", KeyName(true, order.from), ", for ", to));
  } else {
    Note("runtime-assigned", absl::StrCat(Label(order.gpu), ": to ", to));
  }
  VoidDispatches(order.gpu);
  ForgetPlans(order.gpu);
  proto::AssignWorker assign;
  assign.set_isolation_key(node::RuntimeName({order.assigned, order.key}, options_.scheduler.isolated));
  assign.set_fresh(order.fresh);
  assign.set_incarnation(gpu.last.incarnation());
  gpu.coming = assign.isolation_key();
  gpu.last.set_state(proto::ExecutorReport::STARTING);
  gpu.last.clear_worker();
  send(gpu.executor, std::move(assign));
}

// A worker is being started. Not for what was ordered: that one has died, and others may be sought.
void NodeController::Starting(const proto::ExecutorReport& report) {
  auto& coming = gpus_[report.gpu()].coming;
  if (!coming || *coming == report.worker().isolation_key()) return;
  coming.reset();
  Handle(scheduler_.Apply(node::WorkerLost{report.gpu(), report.reason()}, Now(this)));
}

void NodeController::ArmGiveBack() {
  // One whose answers nobody has read yet stays beyond its time: not looked at all the time for that.
  const Duration pause = std::min<Duration>(options_.isolation.idle / 4, std::chrono::seconds(1));
  auto due = scheduler_.NextIdle(options_.isolation.idle);
  if (due == Time::max()) return;
  due = std::max(due, Now(this) + pause);
  if (due >= give_back_armed_) return;
  give_back_armed_ = due;
  After(this, due - Now(this), MakeTick(kGiveBack));
}

void NodeController::ShowRuntimes(std::uint32_t index, proto::GpuStatus& status) {
  if (!options_.scheduler.isolated) return;
  const auto& gpu = scheduler_.gpus().at(index);
  const auto& last = gpus_[index].last;
  auto& runtime = *status.add_runtimes();
  runtime.set_runtime(index % options_.isolation.runtimes);
  const node::Serves serves{gpu.coming.has_value() || gpu.assigned, gpu.coming.value_or(gpu.key)};
  runtime.set_key(node::RuntimeName(serves, true));
  runtime.set_state(StateName(last.state()));
  runtime.set_memory_bytes(gpu.memory.count());
  runtime.set_pid(last.worker().pid());
  if (gpu.in_flight == 0 && gpu.worker == node::WorkerState::kReady)
    runtime.set_idle_ns(std::max<std::int64_t>(0, (Now(this) - gpu.idle_since).count()));
}

}  // namespace troupe::actors
