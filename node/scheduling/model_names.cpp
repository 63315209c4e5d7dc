#include "node/scheduling/model_names.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace troupe::node {

ModelId ModelNames::Intern(const ModelNumber& name) {
  if (const ModelId known = tables_.models.Find(name); known != kNoModel) return known;
  const ModelId id = tables_.models.rows.Add(name);
  if (tables_.models.size() <= id) tables_.models.entries.resize(id + 1);
  tables_.models[id] = {.cost = tables_.times.costs.Hold(name->digest.text()), .key = name->key};
  passing_.push_back(id);
  return id;
}

void ModelNames::ForgetUnused() {
  std::erase_if(passing_, [&](ModelId id) {
    ModelEntry& model = tables_.models[id];
    if (model.adopted) return true;
    if (model.requests > 0 || tables_.gpus.holders().Refers(id) || !tables_.states.Of(id).empty())
      return false;
    std::erase_if(tables_.models.hints, [&](const auto& hint) { return hint.first.second == id; });
    tables_.times.costs.Release(model.cost);
    prefetcher_.ForgetForeseen(id);
    tables_.models.batches.Forget(id);
    tables_.models.rows.Free(id);
    model = {};
    return true;
  });
}

void ModelNames::Check() const {
  std::size_t adopted = 0;
  for (const ModelEntry& model : tables_.models.entries) adopted += model.adopted ? 1 : 0;
  TROUPE_CHECK(tables_.models.rows.size() == adopted + passing_.size(), "a model has a row and no use");
}

}  // namespace troupe::node
