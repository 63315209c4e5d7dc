#include "cluster/requests/cluster_gpus.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace troupe::cluster {

namespace {

// A node tells of no more; what it says beyond is ignored.
constexpr std::uint32_t kMostGpus = 1024, kMostKinds = 64;

Duration Plausible(std::int64_t ns) {
  return std::clamp<Duration>(Duration(ns), Duration(), std::chrono::hours(1));
}

GpuCost CostFrom(const proto::ModelCost& told) {
  return {.load = Plausible(told.load_ns()),
          .run = Plausible(told.run_ns()),
          .bytes = Bytes(told.bytes()),
          .run_bytes = Bytes(told.run_bytes())};
}

}  // namespace

const ClusterGpus::Gpu* ClusterGpus::Find(const GpuPlace& place) const {
  const auto node = nodes_.find(place.node);
  if (node == nodes_.end()) return nullptr;
  const auto gpu = node->second.gpus.find(place.gpu);
  return gpu == node->second.gpus.end() ? nullptr : &gpu->second;
}

ClusterGpus::Gpu* ClusterGpus::Find(const GpuPlace& place) {
  return const_cast<Gpu*>(std::as_const(*this).Find(place));
}

ClusterGpus::IdleGpu ClusterGpus::IdleAs(const GpuPlace& place, const Gpu& gpu) const {
  return {.used = order_ == IdleOrder::kMostUsed ? gpu.used : 0, .place = place};
}

void ClusterGpus::MayBeIdle(const GpuPlace& place, const Gpu& gpu) {
  if (gpu.Idle()) idle_.insert(IdleAs(place, gpu));
}

// --- What nodes tell ---

void ClusterGpus::Apply(const proto::CreditGrant& grant) {
  Node& node = nodes_[grant.node()];
  node.withheld = grant.gpus_withheld();
  if (grant.adopted().added()) {
    for (const auto& removed : grant.adopted().removed()) node.costs.erase(removed);
  } else if (grant.has_adopted()) {
    const std::set<std::string> adopted(grant.adopted().digests().begin(), grant.adopted().digests().end());
    std::erase_if(node.costs, [&](const auto& cost) { return !adopted.contains(cost.first); });
  }
  for (const auto& told : grant.costs()) {
    if (told.kind() >= kMostKinds) continue;
    auto& kinds = node.costs[told.digest()];
    kinds.resize(std::max<std::size_t>(kinds.size(), std::size_t{told.kind()} + 1));
    kinds[told.kind()] = CostFrom(told);
  }
  for (const auto& standing : grant.gpus()) {
    if (standing.gpu() >= kMostGpus) continue;
    const GpuPlace place{grant.node(), standing.gpu()};
    Gpu& gpu = node.gpus[standing.gpu()];
    LeaveIdle(place, gpu);
    Told(place, gpu, standing);
    MayBeIdle(place, gpu);
  }
}

void ClusterGpus::Told(const GpuPlace& place, Gpu& gpu, const proto::GpuStanding& standing) {
  gpu.ready = standing.ready();
  gpu.kind = standing.kind();
  gpu.memory = Bytes(standing.memory_bytes());
  gpu.others = standing.others();
  gpu.others_left = Plausible(standing.others_ns());
  if (!gpu.ready) return DropAll(place, gpu);
  const std::set<std::string> there(standing.resident().begin(), standing.resident().end());
  std::vector<std::string> gone;
  for (const auto& [model, last] : gpu.models)
    if (!there.contains(model)) gone.push_back(model);
  for (const std::string& model : gone) Drop(place, gpu, model);
  for (const std::string& model : there)
    if (!gpu.models.contains(model)) Add(place, gpu, model);
  // What the node had not been given yet when it told.
  for (const auto& [ticket, sent] : gpu.sent)
    if (!gpu.models.contains(sent.model)) Use(place, gpu, sent.model);
}

void ClusterGpus::Remove(const std::string& node) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  for (auto& [index, gpu] : it->second.gpus) {
    const GpuPlace place{node, index};
    LeaveIdle(place, gpu);
    DropAll(place, gpu);
  }
  nodes_.erase(it);
}

void ClusterGpus::Lose(const GpuPlace& place) {
  Gpu* const gpu = Find(place);
  if (gpu == nullptr) return;
  LeaveIdle(place, *gpu);
  gpu->ready = false;
  DropAll(place, *gpu);
}

// --- What this router sends ---

void ClusterGpus::Send(const GpuPlace& place, std::uint64_t ticket, Sent sent, Time now) {
  Gpu* const gpu = Find(place);
  TROUPE_CHECK(gpu != nullptr && gpu->ready, "a request was sent to a GPU that is not known");
  LeaveIdle(place, *gpu);
  Use(place, *gpu, sent.model);
  gpu->work.Add(sent.work, now);
  ++gpu->used;
  TROUPE_CHECK(gpu->sent.emplace(ticket, std::move(sent)).second, "a ticket was used twice");
}

void ClusterGpus::Return(const GpuPlace& place, std::uint64_t ticket, Time now) {
  Gpu* const gpu = Find(place);
  if (gpu == nullptr) return;  // its node was lost, and is here again
  const auto sent = gpu->sent.extract(ticket);
  if (sent.empty()) return;
  gpu->work.Done(sent.mapped().work, now);
  MayBeIdle(place, *gpu);
}

// --- Models ---

void ClusterGpus::Add(const GpuPlace& place, Gpu& gpu, const std::string& model) {
  gpu.models[model] = ++uses_;
  holders_[model].insert(place);
}

void ClusterGpus::Drop(const GpuPlace& place, Gpu& gpu, const std::string& model) {
  gpu.models.erase(model);
  const auto holders = holders_.find(model);
  holders->second.erase(place);
  if (holders->second.empty()) holders_.erase(holders);
}

void ClusterGpus::DropAll(const GpuPlace& place, Gpu& gpu) {
  while (!gpu.models.empty()) Drop(place, gpu, std::string(gpu.models.begin()->first));
}

void ClusterGpus::Use(const GpuPlace& place, Gpu& gpu, const std::string& model) {
  if (const auto known = gpu.models.find(model); known != gpu.models.end()) {
    known->second = ++uses_;
    return;
  }
  const GpuCost cost = CostOf(place, model);
  while (Taken(place, gpu) + cost.bytes + cost.run_bytes > gpu.memory) {
    const std::string victim = Victim(gpu, model);
    if (victim.empty()) break;
    Drop(place, gpu, victim);
  }
  Add(place, gpu, model);
}

std::string ClusterGpus::Victim(const Gpu& gpu, const std::string& keep) const {
  std::string victim;
  std::uint64_t oldest = ~std::uint64_t{0};
  for (const auto& [model, last] : gpu.models) {
    const auto needs = [&model = model](const auto& sent) { return sent.second.model == model; };
    if (last >= oldest || model == keep || std::ranges::any_of(gpu.sent, needs)) continue;
    victim = model;
    oldest = last;
  }
  return victim;
}

Bytes ClusterGpus::Taken(const GpuPlace& place, const Gpu& gpu) const {
  Bytes taken;
  for (const auto& [model, last] : gpu.models) taken += CostOf(place, model).bytes;
  for (const auto& [ticket, sent] : gpu.sent) taken += CostOf(place, sent.model).run_bytes;
  return taken;
}

// --- Looks ---

std::optional<ClusterGpus::IdleGpu> ClusterGpus::NextIdle(const std::optional<IdleGpu>& after) const {
  const auto it = after ? idle_.upper_bound(*after) : idle_.begin();
  return it == idle_.end() ? std::nullopt : std::optional(*it);
}

bool ClusterGpus::IsIdle(const GpuPlace& place) const {
  const Gpu* const gpu = Find(place);
  return gpu != nullptr && gpu->Idle();
}

bool ClusterGpus::HasAlone(const GpuPlace& place) const {
  const Gpu* const gpu = Find(place);
  return gpu != nullptr && std::ranges::any_of(gpu->sent, [](const auto& sent) { return sent.second.alone; });
}

const std::set<GpuPlace>* ClusterGpus::Holders(const std::string& model) const {
  const auto it = holders_.find(model);
  return it == holders_.end() ? nullptr : &it->second;
}

bool ClusterGpus::Has(const GpuPlace& place, const std::string& model) const {
  return ModelsOf(place).contains(model);
}

const std::map<std::string, std::uint64_t>& ClusterGpus::ModelsOf(const GpuPlace& place) const {
  static const std::map<std::string, std::uint64_t> kNone;
  const Gpu* const gpu = Find(place);
  return gpu == nullptr ? kNone : gpu->models;
}

Duration ClusterGpus::Left(const GpuPlace& place, Time now) const {
  const Gpu* const gpu = Find(place);
  return gpu == nullptr ? Duration() : gpu->work.Left(now) + gpu->others_left;
}

GpuCost ClusterGpus::CostOf(const GpuPlace& place, const std::string& model) const {
  const Gpu* const gpu = Find(place);
  if (gpu == nullptr) return {};
  const auto& costs = nodes_.at(place.node).costs;
  const auto it = costs.find(model);
  return it == costs.end() || gpu->kind >= it->second.size() ? GpuCost() : it->second[gpu->kind];
}

bool ClusterGpus::Room(const Gpu& gpu, const GpuCost& cost) const {
  return gpu.ready && cost.bytes + cost.run_bytes <= gpu.memory;
}

bool ClusterGpus::Fits(const GpuPlace& place, const std::string& model) const {
  const Gpu* const gpu = Find(place);
  const GpuCost cost = CostOf(place, model);
  if (gpu == nullptr || Room(*gpu, cost)) return gpu != nullptr;
  return std::ranges::none_of(nodes_, [&](const auto& node) {
    return std::ranges::any_of(node.second.gpus, [&](const auto& other) { return Room(other.second, cost); });
  });
}

bool ClusterGpus::Tells(const std::string& node) const {
  const auto it = nodes_.find(node);
  return it != nodes_.end() && !it->second.gpus.empty();
}

std::string ClusterGpus::Withheld(const std::string& node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? std::string() : it->second.withheld;
}

void ClusterGpus::Check() const {
  std::size_t idle = 0;
  std::map<std::string, std::set<GpuPlace>> holders;
  for (const auto& [name, node] : nodes_) {
    for (const auto& [index, gpu] : node.gpus) {
      const GpuPlace place{name, index};
      idle += gpu.Idle() ? 1 : 0;
      TROUPE_CHECK(gpu.Idle() == idle_.contains(IdleAs(place, gpu)), "a GPU is idle, or not, by mistake");
      TROUPE_CHECK(gpu.work.pieces() == gpu.sent.size(), "the work of a GPU is counted wrong");
      for (const auto& [model, last] : gpu.models) holders[model].insert(place);
    }
  }
  TROUPE_CHECK(idle == idle_.size(), "a GPU counts as idle that is not known");
  TROUPE_CHECK(holders == holders_, "the holders of a model are wrong");
}

}  // namespace troupe::cluster
