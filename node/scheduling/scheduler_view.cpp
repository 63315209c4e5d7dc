// The swap scheduler and names: which number a model or a function has here and for how long, and the tables
// as their owner sees them.
#include <algorithm>

#include "base/check.hpp"
#include "node/runtimes/isolation.hpp"
#include "node/scheduling/swap_scheduler.hpp"

namespace troupe::node {

ModelId SwapScheduler::Intern(const std::string& name) {
  const std::size_t known = tables_.names.size();
  const ModelId id = tables_.names.Intern(name);
  if (tables_.names.size() == known) return id;
  if (tables_.models.size() <= id) tables_.models.resize(id + 1);
  tables_.models[id] = {.cost = tables_.costs.Hold(DigestOf(name)), .key = KeyOf(name)};
  passing_.push_back(id);
  return id;
}

// Numbers of models that were never adopted, or are not any more, end when nothing refers to them. Whoever
// changes what is adopted, or takes a model off a GPU, calls this.
void SwapScheduler::ForgetNames() {
  std::erase_if(passing_, [&](ModelId id) {
    Model& model = tables_.models[id];
    if (model.adopted) return true;
    if (model.requests > 0 || tables_.gpus.Refers(id) || !tables_.states.Of(id).empty()) return false;
    std::erase_if(tables_.hints, [&](const auto& hint) { return hint.first.second == id; });
    tables_.costs.Release(model.cost);
    copies_.ForgetForeseen(id);
    tables_.names.Forget(id);
    model = {};
    return true;
  });
}

FunctionId SwapScheduler::EnterFunction(const std::string& function) {
  const FunctionId id = functions_.Intern(function);
  if (serving_.size() <= id) serving_.resize(id + 1);
  ++serving_[id].requests;
  return id;
}

// A request has ended: its function is known as long as it has others.
void SwapScheduler::LeaveNode(const Entry& entry) {
  --tables_.models[entry.model].requests;
  if (--serving_[entry.function].requests > 0) return;
  serving_[entry.function] = {};
  functions_.Forget(entry.function);
}

std::vector<std::string> SwapScheduler::ResidentModels() const {
  std::vector<std::string> models;
  for (const ModelId id : tables_.gpus.ResidentModels()) models.push_back(tables_.NameOf(id));
  std::ranges::sort(models);
  return models;
}

const Resident* SwapScheduler::FindResident(GpuIndex gpu, const std::string& model) const {
  return tables_.gpus.at(gpu).Find(tables_.Find(model));
}

std::uint32_t SwapScheduler::HolderCount(const std::string& model) const {
  return tables_.gpus.HolderCount(tables_.Find(model));
}

std::vector<std::pair<std::string, const Resident*>> SwapScheduler::ResidentsOf(GpuIndex gpu) const {
  std::vector<std::pair<std::string, const Resident*>> residents;
  for (const auto& [id, resident] : tables_.gpus.at(gpu).residents)
    residents.emplace_back(tables_.NameOf(id), &resident);
  std::ranges::sort(residents);
  return residents;
}

std::vector<std::string> SwapScheduler::EvictingOn(GpuIndex gpu) const {
  std::vector<std::string> models;
  for (const auto& [id, orders] : tables_.gpus.at(gpu).evicting) models.push_back(tables_.NameOf(id));
  std::ranges::sort(models);
  return models;
}

const ModelEntry* SwapScheduler::FindCopy(const std::string& name) const {
  if (const Model* model = tables_.Adopted(tables_.Find(name))) return model;
  const std::string digest = DigestOf(name);
  const std::string* first = nullptr;
  for (ModelId id = 0; id < tables_.models.size(); ++id) {
    if (!tables_.models[id].adopted || DigestOf(tables_.NameOf(id)) != digest) continue;
    if (first == nullptr || tables_.NameOf(id) < *first) first = &tables_.NameOf(id);
  }
  return first == nullptr ? nullptr : tables_.Adopted(tables_.Find(*first));
}

bool SwapScheduler::Heavy(const std::string& model) const {
  const Model* copy = FindCopy(model);
  return copy != nullptr && tables_.costs.Heavy(copy->cost, copy->weights);
}

KnownRuns SwapScheduler::RunsOf(const std::string& model) const {
  const ModelId id = tables_.Find(model);
  if (id == kNoName) return {};
  const CostModel::Id cost = tables_.models[id].cost;
  return {tables_.costs.RunTimes(cost), tables_.costs.Cuts(cost)};
}

Bytes SwapScheduler::WeightsOf(const std::string& model) const {
  const Model* copy = FindCopy(model);
  return copy == nullptr ? Bytes() : copy->weights;
}

void SwapScheduler::CheckNames() const {
  std::vector<std::uint32_t> of_model(tables_.models.size());
  std::vector<std::uint32_t> of_function(serving_.size()), dispatched(serving_.size());
  for (const auto& [id, entry] : requests_) {
    TROUPE_CHECK(tables_.NameOf(entry.model) == entry.request.model,
                 "a request goes by another model's number");
    TROUPE_CHECK(functions_.at(entry.function) == entry.request.function,
                 "a request goes by another function's number");
    ++of_model[entry.model];
    ++of_function[entry.function];
    dispatched[entry.function] += entry.gpu == kNoGpu ? 0 : 1;
  }
  std::size_t adopted = 0;
  for (ModelId id = 0; id < tables_.models.size(); ++id) {
    TROUPE_CHECK(tables_.models[id].requests == of_model[id], "the requests of a model are counted wrong");
    adopted += tables_.models[id].adopted ? 1 : 0;
  }
  for (FunctionId id = 0; id < serving_.size(); ++id) {
    TROUPE_CHECK(serving_[id].requests == of_function[id], "the requests of a function are counted wrong");
    TROUPE_CHECK(serving_[id].dispatched == dispatched[id], "functions run that nobody dispatched");
  }
  TROUPE_CHECK(tables_.names.size() == adopted + passing_.size(), "a model has a number for nobody");
}

}  // namespace troupe::node
