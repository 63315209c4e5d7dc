// MODEL ENTRIES: what the swap scheduler knows of each model: its row, what it takes, what a GPU said of it, and what
// its runs for several requests take. One of the scheduler's tables.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "node/scheduling/batch_profiles.hpp"
#include "node/scheduling/model_rows.hpp"
#include "node/scheduling/scheduler_entries.hpp"

namespace troupe::node {

struct ModelEntries {
  [[nodiscard]] ModelEntry& operator[](ModelId model) { return entries[model]; }
  [[nodiscard]] const ModelEntry& operator[](ModelId model) const { return entries[model]; }
  [[nodiscard]] std::size_t size() const { return entries.size(); }
  [[nodiscard]] ModelId Find(const ModelNumber& model) const { return rows.Find(model); }
  [[nodiscard]] const ModelNumber& NameOf(ModelId model) const { return rows.at(model); }
  // Null: this node has not adopted it, or not any more.
  [[nodiscard]] ModelEntry* Adopted(ModelId model) {
    return model != kNoModel && entries[model].adopted ? &entries[model] : nullptr;
  }
  [[nodiscard]] const ModelEntry* Adopted(ModelId model) const {
    return model != kNoModel && entries[model].adopted ? &entries[model] : nullptr;
  }

  ModelRows rows;
  std::vector<ModelEntry> entries;  // by row; a new one moves them
  std::map<std::pair<GpuIndex, ModelId>, FitHint> hints;
  BatchProfiles batches;
};

}  // namespace troupe::node
