// STORE WATCH: what a disk was told to keep, as the disk sees it, and what must hold of that: no step of a
// run, no end of a run and no deployment is kept twice, what was acknowledged is there at the end, and no
// member's epoch is given twice. Parses the records, and knows nothing of their writers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "storage/metadata_store.hpp"

namespace troupe::sim {

class StoreWatch {
 public:
  // `acknowledged`: its writer is told that it is durable.
  void Written(const storage::Batch& batch, bool acknowledged, Time now);
  // A line for each rule that was broken while it was written.
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }
  // A line for each acknowledged record that `store` does not have as it was written last.
  [[nodiscard]] std::vector<std::string> CheckKept(const storage::MetadataStore& store) const;
  // What was written last under this key was acknowledged.
  [[nodiscard]] bool Acknowledged(storage::Table table, const std::string& key) const {
    const auto it = kept_.find({table, key});
    return it != kept_.end() && it->second.certain;
  }
  [[nodiscard]] std::uint64_t batches() const { return batches_; }

 private:
  using Key = std::pair<storage::Table, std::string>;
  struct Kept {
    std::optional<std::string> value;  // absent: deleted
    bool certain = true;               // acknowledged, and nothing uncertain came after it
  };
  void Look(const storage::Batch::Mutation& mutation, bool acknowledged, Time now);
  void LookAtRun(const storage::Batch::Mutation& mutation, const std::string& when);
  void LookAtEpoch(const storage::Batch::Mutation& mutation, const std::string& when);

  std::map<Key, Kept> kept_;
  std::uint64_t last_epoch_ = 0;
  std::uint64_t batches_ = 0;
  std::vector<std::string> broken_;
};

}  // namespace troupe::sim
