#include "gpu/worker/preparer.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/device/tensor_bytes.hpp"

namespace troupe::gpu {
namespace {

absl::StatusOr<std::shared_ptr<DevicePlan>> Make(Device& device, const HostModel& host,
                                                 const std::vector<proto::TensorSpec>& inputs,
                                                 proto::Precision precision) {
  TROUPE_ASSIGN_OR_RETURN(const proto::Model model, ReadModel(host, device.info().pack_target));
  return device.Prepare(model, host.weights, inputs, precision);
}

}  // namespace

Preparer::Preparer(Device& device, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits)
    : device_(device), queue_(queue), lanes_(lanes), limits_(limits), cache_(limits.plans) {}

void Preparer::Prepare(std::uint64_t order, const HostModel& host, std::vector<proto::TensorSpec> inputs,
                       proto::Precision precision, Done done) {
  for (proto::TensorSpec& input : inputs) input = WithTextRoom(std::move(input));
  const std::string key = PlanKeyOf(host.digest, inputs, precision);
  if (auto plan = cache_.Find(key); plan != nullptr) {
    done(plan);
    return;
  }
  if (Preparing(key)) {
    Await(key, std::move(done));
    return;
  }
  if (waiting_.size() >= limits_.preparations) {
    done(absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " plans wait to be prepared: ask again later")));
    return;
  }
  Waiting& waiting = waiting_[key];
  waiting.order = order;
  waiting.done.push_back(std::move(done));
  thread_.Post([this, key, host, inputs = std::move(inputs), precision] {
    auto plan = Make(device_, host, inputs, precision);
    queue_.Post([this, key, digest = host.digest, precision, plan = std::move(plan)] {
      Finished(key, digest, precision, plan);
    });
  });
  ShowLane();
}

void Preparer::Await(const std::string& key, Done done) {
  const auto found = waiting_.find(key);
  TROUPE_CHECK(found != waiting_.end(), "a plan was awaited that is not being prepared");
  found->second.done.push_back(std::move(done));
}

void Preparer::Finished(const std::string& key, const std::string& digest, proto::Precision precision,
                        absl::StatusOr<std::shared_ptr<DevicePlan>> plan) {
  if (plan.ok()) cache_.Put(key, digest, precision, *plan);
  const Waiting waiting = std::move(waiting_.extract(key).mapped());
  ++finished_;
  ShowLane();
  for (const Done& done : waiting.done) done(plan);
}

void Preparer::ShowLane() {
  lanes_.Show(Lane::kPrepare, !waiting_.empty(), finished_);
  lanes_.At(Lane::kPrepare, waiting_.empty() ? 0 : waiting_.begin()->second.order);
}

}  // namespace troupe::gpu
