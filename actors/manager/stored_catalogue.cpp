#include "actors/manager/stored_catalogue.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/records/record_keys.hpp"

namespace troupe::actors {

namespace {

using storage::Table;

absl::StatusOr<std::uint64_t> Number(const storage::MetadataStore& store, const char* key) {
  const auto text = store.Get(Table::kSettings, key);
  if (absl::IsNotFound(text.status())) return 0;
  TROUPE_RETURN_IF_ERROR(text.status());
  std::uint64_t number = 0;
  if (!absl::SimpleAtoi(*text, &number))
    return absl::DataLossError(absl::StrCat("setting ", key, " is not a valid number"));
  return number;
}

template <class Record>
absl::Status ReadAll(const storage::MetadataStore& store, Table table, std::string_view prefix,
                     std::vector<Record>& records) {
  std::vector<Record> read;
  TROUPE_RETURN_IF_ERROR(storage::ScanMessages<Record>(
      store, table, prefix, [&](std::string_view, Record record) { read.push_back(std::move(record)); }));
  records = std::move(read);
  return absl::OkStatus();
}

Table TableOf(cluster::Table table) {
  switch (table) {
    case cluster::Table::kSettings:
      return Table::kSettings;
    case cluster::Table::kFunctions:
      return Table::kFunctions;
    case cluster::Table::kWorkflows:
      return Table::kWorkflows;
    case cluster::Table::kRuns:
      return Table::kRuns;
    case cluster::Table::kSteps:
      return Table::kSteps;
  }
  return Table::kSettings;
}

// Up to the first table that cannot be read.
absl::Status Read(const storage::MetadataStore& store, cluster::CatalogueRecords& records) {
  const auto id = store.Get(Table::kSettings, cluster::kClusterKey);
  if (!id.ok() && !absl::IsNotFound(id.status())) return id.status();
  if (id.ok()) records.cluster = *id;
  TROUPE_ASSIGN_OR_RETURN(records.last_epoch, Number(store, cluster::kEpochKey));
  TROUPE_ASSIGN_OR_RETURN(records.revision, Number(store, cluster::kRevisionKey));
  TROUPE_ASSIGN_OR_RETURN(records.last_term, Number(store, cluster::kTermKey));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kFunctions, "", records.functions));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kWorkflows, "", records.workflows));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kSettings, cluster::kHomeKey, records.homes));
  TROUPE_RETURN_IF_ERROR(
      store.Scan(Table::kSettings, cluster::kDrainedKey, [&](std::string_view key, std::string_view) {
        records.drained.emplace_back(key.substr(sizeof(cluster::kDrainedKey) - 1));
        return true;
      }));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kSettings, cluster::kApiKeyKey, records.keys));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kSettings, cluster::kUsageKey, records.usage));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kSettings, cluster::kUsageLedgerKey, records.ledgers));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kSettings, cluster::kProfileKey, records.profiles));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kSettings, cluster::kExperimentKey, records.experiments));
  TROUPE_RETURN_IF_ERROR(ReadAll(store, Table::kRuns, "", records.runs));
  return ReadAll(store, Table::kSteps, "", records.steps);
}

}  // namespace

absl::StatusOr<cluster::Catalogue> LoadCatalogue(const storage::MetadataStore& store,
                                                 const std::string& cluster_id) {
  cluster::CatalogueRecords records;
  const auto read = Read(store, records);
  // Of two damaged records the first is named, in the order of the tables: a version that is not valid in a
  // table that could be read comes before a later table that could not.
  auto catalogue = cluster::Catalogue::Of(std::move(records), cluster_id);
  if (catalogue.ok() && !read.ok()) return read;
  return catalogue;
}

Recovered CountRecovered(const cluster::Catalogue& catalogue) {
  const auto runs = catalogue.runs().List("");
  const auto ended = std::count_if(runs.begin(), runs.end(),
                                   [](const auto* run) { return cluster::RunEnded(run->state()); });
  return {catalogue.functions().table().size(), catalogue.workflows().size(), runs.size(),
          runs.size() - static_cast<std::size_t>(ended)};
}

std::vector<cluster::Lacking> FindLacking(
    const cluster::Catalogue& catalogue,
    const std::function<std::vector<std::string>(const proto::FunctionRecord&)>& lacking) {
  std::vector<cluster::Lacking> all;
  if (!lacking) return all;
  catalogue.functions().table().ForEach([&](const proto::FunctionRecord& record) {
    if (auto objects = lacking(record); !objects.empty()) all.push_back({record.key(), std::move(objects)});
  });
  return all;
}

storage::Batch BatchOf(const cluster::Changes& changes) {
  storage::Batch batch;
  for (const auto& change : changes.all()) {
    const auto table = TableOf(change.table);
    change.value ? batch.Put(table, change.key, *change.value) : batch.Delete(table, change.key);
  }
  return batch;
}

}  // namespace troupe::actors
