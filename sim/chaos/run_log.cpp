#include "sim/chaos/run_log.hpp"

#include <map>
#include <string>
#include <utility>

#include "base/status.hpp"

namespace troupe::sim {

absl::StatusOr<std::vector<proto::RunRecord>> RunLogOf(const storage::MetadataStore& store) {
  std::map<std::string, proto::RunRecord> runs;
  TROUPE_RETURN_IF_ERROR(storage::ScanMessages<proto::RunRecord>(
      store, storage::Table::kRuns, "",
      [&](std::string_view key, proto::RunRecord run) { runs[std::string(key)] = std::move(run); }));
  TROUPE_RETURN_IF_ERROR(storage::ScanMessages<proto::CommitStep>(
      store, storage::Table::kSteps, "",
      [&](std::string_view, const proto::CommitStep& step) { *runs[step.run()].add_steps() = step; }));
  std::vector<proto::RunRecord> log;
  for (auto& [name, run] : runs) log.push_back(std::move(run));
  return log;
}

absl::StatusOr<std::vector<proto::RunRecord>> OpenRunsOf(const storage::MetadataStore& store,
                                                         const StoreWatch* watch) {
  TROUPE_ASSIGN_OR_RETURN(auto runs, RunLogOf(store));
  std::erase_if(runs, [&](const proto::RunRecord& run) {
    const bool open = run.state() == proto::RUN_RUNNING || run.state() == proto::RUN_PENDING;
    return !open || (watch != nullptr && !watch->Acknowledged(storage::Table::kRuns, run.start().run()));
  });
  return runs;
}

}  // namespace troupe::sim
