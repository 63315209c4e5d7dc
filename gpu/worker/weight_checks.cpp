#include "gpu/worker/weight_checks.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

void WeightChecks::Begin(WeightCheck check) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  checks_.push_back({std::move(check)});
  if (!thread_.joinable()) thread_ = std::thread([this] { Serve(); });
  changed_.notify_one();
}

void WeightChecks::Hurry(const std::string& digest, Time deadline) {
  const std::lock_guard lock(mutex_);
  for (UnderWay& one : checks_) {
    if (one.check.host.digest == digest) one.check.deadline = std::min(one.check.deadline, deadline);
  }
}

void WeightChecks::Close() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

WeightChecks::List::iterator WeightChecks::MostUrgent() {
  return std::ranges::min_element(checks_, {}, [](const UnderWay& one) { return one.check.deadline; });
}

void WeightChecks::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !checks_.empty(); });
    if (stopping_) return;
    const auto next = MostUrgent();
    lock.unlock();
    const bool ended = Advance(*next);
    lock.lock();
    if (ended) checks_.erase(next);
  }
}

bool WeightChecks::Advance(UnderWay& under_way) {
  const WeightCheck& check = under_way.check;
  const auto groups = check.load->groups();
  if (under_way.group < groups.size()) {
    const Group& group = groups[under_way.group];
    const absl::StatusOr<bool> same =
        device_.Holds(check.weights.Part(Bytes(group.offset), Bytes(group.length)),
                      check.host.weights.subspan(group.offset, group.length));
    absl::Status status = same.status();
    if (same.ok() && !*same) {
      status = absl::DataLossError(
          absl::StrCat("the weights of model ", check.host.digest,
                       " that an earlier worker left are not those of the host copy, between bytes ",
                       group.offset, " and ", group.offset + group.length, ": they come again"));
    }
    if (!status.ok()) {
      check.done(status);
      return true;
    }
    check.load->Arrived(transport::SteadyNow());
    if (under_way.group++ == 0) check.first_group();
  }
  if (under_way.group < groups.size()) return false;
  check.done(absl::OkStatus());
  return true;
}

}  // namespace troupe::gpu
