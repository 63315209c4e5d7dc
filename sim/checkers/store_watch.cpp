#include "sim/checkers/store_watch.hpp"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cluster/step_retry.hpp"
#include "proto/function.pb.h"
#include "proto/workflow.pb.h"
#include "sim/checkers/tensor_check.hpp"

namespace troupe::sim {

namespace {

using storage::Table;

bool Ended(const proto::RunRecord& run) {
  return run.state() != proto::RUN_RUNNING && run.state() != proto::RUN_PENDING;
}

// A run that failed for a passing reason may go on, for the next claim and as what it was.
bool Reopened(const proto::RunRecord& before, const proto::RunRecord& after) {
  return before.state() == proto::RUN_FAILED &&
         cluster::MayReopen(static_cast<absl::StatusCode>(before.code())) &&
         after.state() == proto::RUN_RUNNING && after.claim() == before.claim() + 1 &&
         after.start().SerializeAsString() == before.start().SerializeAsString();
}

// The same deployment, which shares its GPUs in another way, owns other parts of them, or has another part of the requests.
bool Updated(const std::string& before, const std::string& after) {
  proto::FunctionRecord first, second;
  if (!first.ParseFromString(before) || !second.ParseFromString(after)) return false;
  for (auto* record : {&first, &second}) {
    record->clear_sharing();
    record->clear_places();
    record->clear_revision();
    record->clear_share_percent();
    record->clear_role();
  }
  return first.SerializeAsString() == second.SerializeAsString();
}

// Only a step whose outputs may be lost with the GPU that keeps them is committed again.
bool MayBeComputedAgain(const std::string& record) {
  proto::CommitStep step;
  return step.ParseFromString(record) && OnlyKept(step);
}

}  // namespace

void StoreWatch::Written(const storage::Batch& batch, bool acknowledged, Time now) {
  ++batches_;
  for (const auto& mutation : batch.mutations()) Look(mutation, acknowledged, now);
}

void StoreWatch::Look(const storage::Batch::Mutation& mutation, bool acknowledged, Time now) {
  const auto when = absl::StrCat(" at ", FormatDuration(now.time_since_epoch()));
  const auto it = kept_.find({mutation.table, mutation.key});
  const bool there = it != kept_.end() && it->second.value && it->second.certain;
  if (there && mutation.value && acknowledged) {
    if (mutation.table == Table::kSteps && !MayBeComputedAgain(*it->second.value))
      broken_.push_back(absl::StrCat("step ", mutation.key, " is committed a second time", when));
    if (mutation.table == Table::kFunctions && !Updated(*it->second.value, *mutation.value))
      broken_.push_back(absl::StrCat("function ", mutation.key, " is deployed over itself", when));
    if (mutation.table == Table::kRuns) LookAtRun(mutation, when);
  }
  if (mutation.table == Table::kSettings && mutation.key == "epoch") LookAtEpoch(mutation, when);
  auto& kept = kept_[{mutation.table, mutation.key}];
  // A record that was not acknowledged may be there or not.
  kept = {mutation.value, acknowledged};
}

void StoreWatch::LookAtRun(const storage::Batch::Mutation& mutation, const std::string& when) {
  proto::RunRecord before, after;
  const auto& value = *kept_.at({mutation.table, mutation.key}).value;
  if (!before.ParseFromString(value) || !after.ParseFromString(*mutation.value)) {
    broken_.push_back(absl::StrCat("run ", mutation.key, " is not a record of a run", when));
  } else if (Ended(before) && value != *mutation.value && !Reopened(before, after)) {
    broken_.push_back(absl::StrCat("run ", mutation.key, " ended as ", proto::RunState_Name(before.state()),
                                   " and is written again as ", proto::RunState_Name(after.state()), when));
  } else if (!Ended(before) && !Ended(after) && before.start().unix_ns() != after.start().unix_ns()) {
    broken_.push_back(absl::StrCat("run ", mutation.key, " is begun a second time", when));
  }
}

void StoreWatch::LookAtEpoch(const storage::Batch::Mutation& mutation, const std::string& when) {
  std::uint64_t epoch = 0;
  if (!mutation.value || !absl::SimpleAtoi(*mutation.value, &epoch)) {
    broken_.push_back(absl::StrCat("the epoch becomes '", mutation.value.value_or(""), "'", when));
    return;
  }
  if (epoch <= last_epoch_)
    broken_.push_back(absl::StrCat("epoch ", epoch, " is given after epoch ", last_epoch_, when));
  last_epoch_ = std::max(last_epoch_, epoch);
}

std::vector<std::string> StoreWatch::CheckKept(const storage::MetadataStore& store) const {
  std::vector<std::string> lost;
  for (const auto& [key, kept] : kept_) {
    if (!kept.certain) continue;
    const auto name = absl::StrCat("record ", key.second, " of table ", storage::TableName(key.first));
    const auto found = store.Get(key.first, key.second);
    if (kept.value && !found.ok()) {
      lost.push_back(absl::StrCat(name, " was acknowledged, and is not there: ", found.status().message()));
    } else if (kept.value && *found != *kept.value) {
      lost.push_back(absl::StrCat(name, " is not as it was acknowledged last"));
    } else if (!kept.value && found.ok()) {
      lost.push_back(absl::StrCat(name, " is there, and its removal was acknowledged"));
    }
  }
  return lost;
}

}  // namespace troupe::sim
