#include "node/scheduling/model_names.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "node/runtimes/isolation.hpp"

namespace troupe::node {

ModelId ModelNames::Intern(const std::string& name) {
  const std::size_t known = tables_.names.size();
  const ModelId id = tables_.names.Intern(name);
  if (tables_.names.size() == known) return id;
  if (tables_.models.size() <= id) tables_.models.resize(id + 1);
  tables_.models[id] = {.cost = tables_.costs.Hold(DigestOf(name)), .key = KeyOf(name)};
  passing_.push_back(id);
  return id;
}

void ModelNames::ForgetUnused() {
  std::erase_if(passing_, [&](ModelId id) {
    ModelEntry& model = tables_.models[id];
    if (model.adopted) return true;
    if (model.requests > 0 || tables_.gpus.holders().Refers(id) || !tables_.states.Of(id).empty())
      return false;
    std::erase_if(tables_.hints, [&](const auto& hint) { return hint.first.second == id; });
    tables_.costs.Release(model.cost);
    prefetcher_.ForgetForeseen(id);
    tables_.names.Forget(id);
    model = {};
    return true;
  });
}

void ModelNames::Check() const {
  std::size_t adopted = 0;
  for (const ModelEntry& model : tables_.models) adopted += model.adopted ? 1 : 0;
  TROUPE_CHECK(tables_.names.size() == adopted + passing_.size(), "a model has a number and no use");
}

}  // namespace troupe::node
