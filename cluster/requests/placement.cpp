#include "cluster/requests/placement.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace troupe::cluster {

Placement::Placement(const RoutingPolicy& routing, RequestIndex& requests, const RequestOrder& order,
                     const CreditTable& credits)
    : routing_(routing), requests_(requests), order_(order), credits_(credits) {
  TROUPE_CHECK((routing_.choose != nullptr) != routing_.by_gpu.has_value(),
               "every slot of the router needs a policy");
  if (routing_.by_gpu) by_gpu_.emplace(*routing_.by_gpu, requests_, queue_, credits_);
}

void Placement::Add(const RequestEntry& entry) {
  queue_.Add(entry);
  if (by_gpu_) by_gpu_->Add(entry);
}

void Placement::Remove(const RequestEntry& entry) {
  queue_.Remove(entry);
  if (by_gpu_) by_gpu_->Remove(entry);
}

void Placement::Unindex(const std::string& model) {
  queue_.Unindex(model);
  if (by_gpu_) by_gpu_->Unindex(model);
}

void Placement::Index(const std::string& model) {
  queue_.Index(model);
  runs_.Keep(model, credits_.Holders(model));
  if (by_gpu_) by_gpu_->Index(model);
}

void Placement::Forget(const std::string& node) {
  queue_.Forget(node);
  runs_.Forget(node);
  given_.erase(node);
  if (by_gpu_) by_gpu_->Forget(node);
}

void Placement::Told(const proto::CreditGrant& grant) {
  if (by_gpu_) by_gpu_->gpus().Apply(grant);
}

void Placement::Sent(std::uint64_t ticket, const RequestEntry& entry, const Target& target, Time now) {
  if (!target.gpu) {
    given_[target.node] += target.work;
    return;
  }
  const bool alone = entry.attempts > 1;  // this one counts already
  by_gpu_->gpus().Send({target.node, *target.gpu}, ticket, {entry.request.model, target.work, alone}, now);
}

void Placement::Returned(std::uint64_t ticket, const Sendings::Sending& sending, Time now) {
  if (sending.gpu) return by_gpu_->gpus().Return({sending.node, *sending.gpu}, ticket, now);
  given_[sending.node] -= sending.work;
}

void Placement::GpuLost(const Sendings::Sending& sending) {
  by_gpu_->gpus().Lose({sending.node, *sending.gpu});
}

// Half of a node's places are for what can still be met: there it would wait for what is late.
bool Placement::HasPlace(const NodeCredit& node, const RequestEntry& entry) const {
  return !order_.Yields(entry) || 2 * node.in_flight < node.limit;
}

NodeOption Placement::OptionOf(const RequestEntry& entry, const std::string& name) const {
  const NodeCredit& node = *credits_.Find(name);
  const std::string& model = entry.request.model;
  return {.name = name,
          .resident = node.resident.contains(model),
          .in_flight = node.in_flight,
          .limit = node.limit,
          .run = routing_.kinds == NodeKinds::kLearned ? RunAt(entry.request, name) : Duration(),
          .ahead = WorkAt(name) + (routing_.work == NodeWork::kOfAll ? node.others : Duration()),
          .gpus = routing_.work == NodeWork::kOfAll ? node.fit_gpus : 0};
}

Duration Placement::RunAt(const RouterRequest& request, const std::string& node) const {
  const auto kinds = kinds_.find(node);
  if (request.profiled.by_kind.empty() || kinds == kinds_.end()) return runs_.RunAt(request.model, node);
  Duration shortest = Duration::max();
  for (const auto& kind : kinds->second) {
    const auto run = request.profiled.by_kind.find(kind);
    if (run == request.profiled.by_kind.end()) return runs_.RunAt(request.model, node);
    shortest = std::min(shortest, run->second);
  }
  return shortest;
}

Duration Placement::WorkOf(const RequestEntry& entry, const std::string& node) const {
  const Duration run = RunAt(entry.request, node);
  return run > Duration::zero() ? run : any_run_.Or({});
}

// Where nodes differ in kind, the nodes at which the request would be late are left out. A request that is late everywhere leaves
// the fast nodes to other requests.
void Placement::LeaveOutByDeadline(const RequestEntry& entry, Time now,
                                   std::vector<NodeOption>& options) const {
  const auto shortest = ShortestOfKinds(options);
  if (entry.deadline == Time::max() || !shortest) return;
  const Duration left = entry.deadline - now;
  const auto late = [left](const NodeOption& option) { return EndAt(option) >= left; };
  if (std::ranges::all_of(options, late)) {
    std::erase_if(options, [&](const NodeOption& option) { return !IsClearlyLonger(option.run, *shortest); });
  } else {
    std::erase_if(options, late);
  }
}

// The first request of the model that the node has not refused; null: it has refused all.
RequestEntry* Placement::FirstFor(const std::string& node, const std::string& model, Time now) {
  for (const auto& [key, sequence] : *queue_.Find(model)) {
    RequestEntry& entry = requests_.At(sequence);
    if (!entry.RefusedBy(node, now)) return &entry;
  }
  return nullptr;
}

// The most urgent request that some node with a credit can take. Looks at the first eligible model of each
// node, and beyond it only past requests that this node has refused; late ones that it has no place for stop
// it, since what comes behind them is late, too, or of a lower priority.
RequestEntry* Placement::MostUrgent(Time now) {
  RequestEntry* best = nullptr;
  for (const auto& [name, node] : credits_.nodes()) {
    if (!node.Open(now)) continue;
    const auto* heads = queue_.HeadsFor(name);
    if (heads == nullptr) continue;
    for (const auto& head : *heads) {
      if (best != nullptr && best->key < head.key) break;
      if (!HasPlace(node, requests_.At(queue_.FirstOf(head.model)))) break;
      RequestEntry* const entry = FirstFor(name, head.model, now);
      if (entry == nullptr || !HasPlace(node, *entry)) continue;
      if (best == nullptr || entry->key < best->key) best = entry;
    }
  }
  return best;
}

std::string Placement::ChooseNode(const RequestEntry& entry, Time now) const {
  std::vector<NodeOption> options;
  for (const std::string& name : *credits_.Holders(entry.request.model)) {
    const NodeCredit& node = *credits_.Find(name);
    if (!node.Open(now) || entry.RefusedBy(name, now) || !HasPlace(node, entry)) continue;
    if (name == entry.request.holder) return name;  // its inputs need not travel
    options.push_back(OptionOf(entry, name));
  }
  TROUPE_CHECK(!options.empty(), "a request was chosen that no node can take");
  LeaveOutByDeadline(entry, now, options);
  const std::size_t choice = routing_.choose(options);
  TROUPE_CHECK(choice < options.size(), "the routing policy chose a node that was not offered");
  return std::string(options[choice].name);
}

void Placement::Decide(Time now, SendTo send) {
  if (by_gpu_) {
    return by_gpu_->Decide(now, [&](RequestEntry& entry, const GpuPlace& place, Duration work) {
      send(entry, {.node = place.node, .gpu = place.gpu, .work = work});
    });
  }
  while (!queue_.empty()) {
    RequestEntry* const entry = MostUrgent(now);
    if (entry == nullptr) break;
    if (entry->expiry <= now) break;  // Expire comes first
    const std::string node = ChooseNode(*entry, now);
    send(*entry, {.node = node, .work = WorkOf(*entry, node)});
  }
}

void Placement::Check() const {
  if (by_gpu_) by_gpu_->Check();
}

}  // namespace troupe::cluster
