#include "node/scheduling/scheduler_view.hpp"

#include <algorithm>

#include "node/runtimes/isolation.hpp"

namespace troupe::node {

std::vector<std::string> SchedulerView::ResidentModels() const {
  std::vector<std::string> models;
  for (const ModelId id : parts_.tables.gpus.ResidentModels()) models.push_back(parts_.tables.NameOf(id));
  std::ranges::sort(models);
  return models;
}

const Resident* SchedulerView::FindResident(GpuIndex gpu, const std::string& model) const {
  return parts_.tables.gpus.at(gpu).Find(parts_.tables.Find(model));
}

std::uint32_t SchedulerView::HolderCount(const std::string& model) const {
  return parts_.tables.gpus.holders().Count(parts_.tables.Find(model));
}

std::vector<std::pair<std::string, const Resident*>> SchedulerView::ResidentsOf(GpuIndex gpu) const {
  std::vector<std::pair<std::string, const Resident*>> residents;
  for (const auto& [id, resident] : parts_.tables.gpus.at(gpu).residents)
    residents.emplace_back(parts_.tables.NameOf(id), &resident);
  std::ranges::sort(residents);
  return residents;
}

std::vector<std::string> SchedulerView::EvictingOn(GpuIndex gpu) const {
  std::vector<std::string> models;
  for (const auto& [id, orders] : parts_.tables.gpus.at(gpu).evicting)
    models.push_back(parts_.tables.NameOf(id));
  std::ranges::sort(models);
  return models;
}

const ModelEntry* SchedulerView::FindCopy(const std::string& name) const {
  if (const ModelEntry* model = parts_.tables.Adopted(parts_.tables.Find(name))) return model;
  const std::string digest = DigestOf(name);
  const std::string* first = nullptr;
  for (ModelId id = 0; id < parts_.tables.models.size(); ++id) {
    if (!parts_.tables.models[id].adopted || DigestOf(parts_.tables.NameOf(id)) != digest) continue;
    if (first == nullptr || parts_.tables.NameOf(id) < *first) first = &parts_.tables.NameOf(id);
  }
  return first == nullptr ? nullptr : parts_.tables.Adopted(parts_.tables.Find(*first));
}

bool SchedulerView::Heavy(const std::string& model) const {
  const ModelEntry* copy = FindCopy(model);
  return copy != nullptr && parts_.tables.costs.Heavy(copy->cost, copy->weights);
}

KnownRuns SchedulerView::RunsOf(const std::string& model) const {
  const ModelId id = parts_.tables.Find(model);
  if (id == kNoName) return {};
  const CostModel::Id cost = parts_.tables.models[id].cost;
  return {parts_.tables.costs.RunTimes(cost), parts_.tables.costs.Cuts(cost)};
}

Bytes SchedulerView::WeightsOf(const std::string& model) const {
  const ModelEntry* copy = FindCopy(model);
  return copy == nullptr ? Bytes() : copy->weights;
}

}  // namespace troupe::node
