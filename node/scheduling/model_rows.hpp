// MODEL ROWS: which row of the scheduler's tables each model has. Rows are used again, so a table is as long as
// the scheduler knew models at a time. The number of a model that has a row is held.
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.hpp"
#include "node/names.hpp"

namespace troupe::node {

class ModelRows {
 public:
  // kNoModel for a model that has none.
  [[nodiscard]] ModelId Find(const ModelNumber& model) const {
    return model && model.value() < rows_.size() ? rows_[model.value()] : kNoModel;
  }
  // Of a row that a model has.
  [[nodiscard]] const ModelNumber& at(ModelId row) const { return models_[row]; }
  // How many models have one.
  [[nodiscard]] std::size_t size() const { return models_.size() - free_.size(); }

  // A row for a model that has none.
  ModelId Add(const ModelNumber& model) {
    TROUPE_CHECK(Find(model) == kNoModel, "a model would have two rows");
    if (free_.empty()) {
      free_.push_back(static_cast<ModelId>(models_.size()));
      models_.emplace_back();
    }
    const ModelId row = free_.back();
    free_.pop_back();
    if (rows_.size() <= model.value()) rows_.resize(model.value() + 1, kNoModel);
    rows_[model.value()] = row;
    models_[row] = model;
    return row;
  }
  // It may be another model's from now on.
  void Free(ModelId row) {
    TROUPE_CHECK(models_[row], "a row was given back that no model has");
    rows_[models_[row].value()] = kNoModel;
    models_[row] = {};
    free_.push_back(row);
  }

 private:
  std::vector<ModelNumber> models_;  // by row; none: the row is free
  std::vector<ModelId> rows_;        // by the value of the model's number
  std::vector<ModelId> free_;
};

}  // namespace troupe::node
