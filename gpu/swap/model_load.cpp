#include "gpu/swap/model_load.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::gpu {

class ModelLoad::GroupEvent final : public Event {
 public:
  GroupEvent(std::shared_ptr<const ModelLoad> load, std::size_t count)
      : load_(std::move(load)), count_(count) {}
  [[nodiscard]] bool done() const override {
    if (load_->arrived() >= count_) return true;
    const std::lock_guard lock(load_->mutex_);
    return Ended();
  }
  [[nodiscard]] absl::Status status() const override {
    const std::lock_guard lock(load_->mutex_);
    TROUPE_CHECK(Ended(), "the status of a pending event was asked for");
    return Result();
  }
  [[nodiscard]] absl::Status Wait(Duration timeout) const override {
    std::unique_lock lock(load_->mutex_);
    if (!load_->changed_.wait_for(lock, timeout, [this] { return Ended(); })) {
      return absl::DeadlineExceededError(
          absl::StrCat("group ", count_ - 1, " is still on its way after ", FormatDuration(timeout)));
    }
    return Result();
  }
  // Copies that have not been ordered may take the host's main loop, which must not depend on what the device does.
  [[nodiscard]] SignalRange signals() const override {
    const std::lock_guard lock(load_->mutex_);
    const OnDevice& here = load_->on_device_;
    if (here.signals == nullptr || count_ <= here.first || count_ > here.behind) return {};
    return {here.signals, count_ - here.first};
  }

 private:
  [[nodiscard]] bool Ended() const { return load_->arrived() >= count_ || !load_->failed_.ok(); }
  [[nodiscard]] absl::Status Result() const {
    return load_->arrived() >= count_ ? absl::OkStatus() : load_->failed_;
  }
  const std::shared_ptr<const ModelLoad> load_;
  const std::size_t count_;
};

ModelLoad::ModelLoad(std::vector<Group> groups, bool whole) : groups_(std::move(groups)), whole_(whole) {
  arrivals_.reserve(groups_.size());
}

void ModelLoad::Arrived(Time at) {
  {
    const std::lock_guard lock(mutex_);
    TROUPE_CHECK(arrivals_.size() < groups_.size(), "a group arrives once");
    arrivals_.push_back(at);
    arrived_.store(arrivals_.size(), std::memory_order_release);
  }
  changed_.notify_all();
}

void ModelLoad::Failed(absl::Status status) {
  {
    const std::lock_guard lock(mutex_);
    if (complete() || !failed_.ok()) return;
    failed_ = std::move(status);
    if (on_device_.signals != nullptr) on_device_.signals->Release();
  }
  changed_.notify_all();
}

void ModelLoad::RaisedByDevice(SignalsPtr signals, std::size_t first, std::size_t behind) {
  if (signals == nullptr) return;
  const std::lock_guard lock(mutex_);
  on_device_ = {std::move(signals), first, behind};
  if (!failed_.ok()) on_device_.signals->Release();
}

Time ModelLoad::ArrivalOf(std::size_t count) const {
  if (count == 0) return Time();
  const std::lock_guard lock(mutex_);
  TROUPE_CHECK(count <= arrivals_.size(), "the arrival of a group on its way was asked for");
  return arrivals_[count - 1];
}

Time ModelLoad::ExpectedEnd() const {
  const std::lock_guard lock(mutex_);
  const std::size_t arrived = arrivals_.size();
  if (arrived == groups_.size()) return arrivals_.back();
  if (arrived < 2) return Time::max();
  const auto bytes = [](std::span<const Group> groups) {
    return std::transform_reduce(groups.begin(), groups.end(), 0.0, std::plus(),
                                 [](const Group& group) { return static_cast<double>(group.length); });
  };
  const std::span<const Group> all(groups_);
  const double seen = bytes(all.subspan(1, arrived - 1));
  const double seconds = ToSeconds(arrivals_.back() - arrivals_.front());
  return arrivals_.back() + FromSeconds(seconds * bytes(all.subspan(arrived)) / std::max(seen, 1.0));
}

EventPtr ModelLoad::After(std::size_t count) {
  if (arrived() >= count) return nullptr;
  return std::make_shared<GroupEvent>(shared_from_this(), count);
}

StepGate ModelLoad::GateFor(const DevicePlan& plan) {
  std::vector<std::uint32_t> needed = GroupsNeeded(plan, groups_);
  if (whole_ && !needed.empty()) needed.back() = static_cast<std::uint32_t>(groups_.size());
  return [load = shared_from_this(), needed = std::move(needed)](std::size_t step) {
    return load->After(needed[step]);
  };
}

}  // namespace troupe::gpu
