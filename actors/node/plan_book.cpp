#include "actors/node/plan_book.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

namespace {

void Append(std::string& key, const proto::TensorSpec& spec) {
  absl::StrAppend(&key, "|", spec.name(), ":", static_cast<int>(spec.type()));
  for (const auto size : spec.shape()) absl::StrAppend(&key, ",", size);
}

}  // namespace

std::string PlanBook::Key(const proto::RunOrder& run) {
  std::string key = run.digest();
  for (const auto& input : run.inputs()) Append(key, input.spec());
  return key;
}

std::string PlanBook::Key(const proto::PrepareOrder& order) {
  std::string key = order.model().digest();
  for (const auto& spec : order.inputs()) Append(key, spec);
  return key;
}

void PlanBook::Reset(const proto::WorkerDescription& worker) {
  prepared_.clear();
  waiting_.clear();
  for (const auto& plan : worker.prepared()) {
    std::string key = plan.digest();
    for (const auto& spec : plan.inputs()) Append(key, spec);
    prepared_.insert(std::move(key));
  }
}

const proto::HostCopy* PlanBook::Copy(const std::string& digest) const {
  const auto it = copies_.find(digest);
  return it == copies_.end() ? nullptr : &it->second;
}

bool PlanBook::Wait(const proto::WorkerOrder& order) {
  const auto [it, is_new] = waiting_.try_emplace(Key(order.run()));
  it->second.push_back(order);
  return is_new;
}

void PlanBook::MarkPrepared(const proto::PrepareOrder& order) {
  // The worker's own cache is bounded too, and says when a plan is gone; this bound only keeps the set
  // finite.
  if (prepared_.size() >= limit_) prepared_.clear();
  prepared_.insert(Key(order));
}

std::vector<proto::WorkerOrder> PlanBook::Waiting(const proto::PrepareOrder& order) {
  const auto it = waiting_.find(Key(order));
  if (it == waiting_.end()) return {};
  auto orders = std::move(it->second);
  waiting_.erase(it);
  return orders;
}

bool PlanBook::Remove(std::uint64_t sequence) {
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    auto& orders = it->second;
    const auto found = std::find_if(orders.begin(), orders.end(), [&](const proto::WorkerOrder& order) {
      return order.sequence() == sequence;
    });
    if (found == orders.end()) continue;
    // The list stays, even empty: its plan is still being prepared.
    orders.erase(found);
    return true;
  }
  return false;
}

}  // namespace troupe::actors
