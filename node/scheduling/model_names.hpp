// MODEL NAMES: which models have a row in the tables, and for how long: as long as they are adopted, on a GPU,
// or asked for.
#pragma once

#include <vector>

#include "node/scheduling/prefetcher.hpp"
#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

class ModelNames {
 public:
  ModelNames(SchedulerTables& tables, Prefetcher& prefetcher) : tables_(tables), prefetcher_(prefetcher) {}

  // The row of this model, a new one if it has none.
  ModelId Intern(const ModelNumber& name);
  // The model is not adopted any more.
  void NoteForgotten(ModelId model) { passing_.push_back(model); }
  // Rows of models that were never adopted, or are not any more, end when nothing refers to them. Whatever
  // changes what is adopted, or takes a model off a GPU, calls this.
  void ForgetUnused();
  void Check() const;

 private:
  SchedulerTables& tables_;
  Prefetcher& prefetcher_;
  std::vector<ModelId> passing_;  // models with a row that are not adopted
};

}  // namespace troupe::node
