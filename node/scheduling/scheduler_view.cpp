#include "node/scheduling/scheduler_view.hpp"

#include <algorithm>

namespace troupe::node {

std::vector<ModelNumber> SchedulerView::ResidentModels() const {
  std::vector<ModelNumber> models;
  const GpuTable& gpus = parts_.tables.gpus;
  for (ModelId id = 0; id < gpus.holders().end(); ++id) {
    const bool there = std::ranges::any_of(gpus.Holders(id), [&](GpuIndex gpu) {
      return gpus.at(gpu).Find(id)->state != ResidentState::kLoading;
    });
    if (there) models.push_back(parts_.tables.models.NameOf(id));
  }
  std::ranges::sort(models, {}, &ModelNumber::text);
  return models;
}

const Resident* SchedulerView::FindResident(GpuIndex gpu, const ModelNumber& model) const {
  return parts_.tables.gpus.at(gpu).Find(parts_.tables.models.Find(model));
}

SchedulerView::OthersWork SchedulerView::OthersOn(GpuIndex index, std::uint64_t router, Time now) const {
  OthersWork others;
  for (const RequestEntry* const entry : parts_.tables.requests.pipelines[index]) {
    if (entry->request.id.router == router && !entry->request.trial) continue;
    ++others.requests;
    others.left += entry->claim.work;
  }
  others.left = std::min(others.left, parts_.tables.gpus.at(index).work.Left(now));
  return others;
}

absl::flat_hash_map<std::uint64_t, Duration> SchedulerView::WorkByRouter() const {
  absl::flat_hash_map<std::uint64_t, Duration> work;
  for (const auto& [id, entry] : parts_.requests.all()) {
    if (entry.leader != nullptr) continue;  // the leader's run is the only one
    work[id.router] += entry.gpu == kNoGpu ? EstimateOf(entry.request.model, 0).run : entry.claim.work;
  }
  return work;
}

SchedulerView::ModelEstimate SchedulerView::EstimateOf(const ModelNumber& name, KindId kind) const {
  const ModelEntry* const model = parts_.tables.models.Adopted(parts_.tables.models.Find(name));
  if (model == nullptr) return {};
  const Duration load = parts_.tables.times.LoadTimeOn(*model, kind);
  Duration run = parts_.tables.times.costs.RunTime(model->cost, kind);
  // As long as no run has found its model there, all that is known is a run with its load.
  if (!parts_.tables.times.costs.Ran(model->cost) && run > load) run -= load;
  return {.load = load, .run = run, .weights = model->weights, .activation = model->activation};
}

std::uint32_t SchedulerView::HolderCount(const ModelNumber& model) const {
  return parts_.tables.gpus.holders().Count(parts_.tables.models.Find(model));
}

std::vector<std::pair<ModelNumber, const Resident*>> SchedulerView::ResidentsOf(GpuIndex gpu) const {
  std::vector<std::pair<ModelNumber, const Resident*>> residents;
  for (const auto& [id, resident] : parts_.tables.gpus.at(gpu).residents)
    residents.emplace_back(parts_.tables.models.NameOf(id), &resident);
  std::ranges::sort(
      residents, {}, [](const auto& there) -> const auto& { return there.first.text(); });
  return residents;
}

std::vector<ModelNumber> SchedulerView::EvictingOn(GpuIndex gpu) const {
  std::vector<ModelNumber> models;
  for (const auto& [id, orders] : parts_.tables.gpus.at(gpu).evicting)
    models.push_back(parts_.tables.models.NameOf(id));
  std::ranges::sort(models, {}, &ModelNumber::text);
  return models;
}

absl::flat_hash_map<std::string_view, ModelNumber> SchedulerView::FirstCopies() const {
  absl::flat_hash_map<std::string_view, ModelNumber> copies;
  for (ModelId id = 0; id < parts_.tables.models.size(); ++id) {
    if (!parts_.tables.models[id].adopted) continue;
    const ModelNumber& name = parts_.tables.models.NameOf(id);
    ModelNumber& first = copies[name->digest.text()];
    if (!first || name.text() < first.text()) first = name;
  }
  return copies;
}

ModelNumber SchedulerView::FirstCopyOf(const DigestNumber& digest) const {
  ModelNumber first;
  for (ModelId id = 0; id < parts_.tables.models.size(); ++id) {
    const ModelNumber& name = parts_.tables.models.NameOf(id);
    if (!parts_.tables.models[id].adopted || !(name->digest == digest)) continue;
    if (!first || name.text() < first.text()) first = name;
  }
  return first;
}

const ModelEntry* SchedulerView::FindCopy(const ModelNumber& name) const {
  if (const ModelEntry* model = parts_.tables.models.Adopted(parts_.tables.models.Find(name))) return model;
  return name ? parts_.tables.models.Adopted(parts_.tables.models.Find(FirstCopyOf(name->digest))) : nullptr;
}

bool SchedulerView::Heavy(const ModelNumber& model) const {
  const ModelEntry* copy = FindCopy(model);
  for (KindId kind = 0; copy != nullptr && kind < parts_.tables.times.kinds; ++kind)
    if (parts_.tables.times.costs.Heavy(copy->cost, copy->weights, kind)) return true;
  return false;
}

bool SchedulerView::HeavyOn(const ModelNumber& model, KindId kind) const {
  const ModelEntry* copy = FindCopy(model);
  return copy != nullptr && parts_.tables.times.costs.Heavy(copy->cost, copy->weights, kind);
}

KnownRuns SchedulerView::RunsOf(const ModelNumber& model, GpuIndex gpu) const {
  const ModelId id = parts_.tables.models.Find(model);
  if (id == kNoModel) return {};
  const CostModel::Id cost = parts_.tables.models[id].cost;
  const auto* learned = parts_.tables.times.costs.LearnedOf(cost, parts_.tables.gpus.at(gpu).kind);
  return learned == nullptr ? KnownRuns() : KnownRuns{learned->times, learned->cuts};
}

Bytes SchedulerView::WeightsOf(const ModelNumber& model) const {
  const ModelEntry* copy = FindCopy(model);
  return copy == nullptr ? Bytes() : copy->weights;
}

}  // namespace troupe::node
