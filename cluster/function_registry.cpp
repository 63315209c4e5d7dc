#include "cluster/function_registry.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "cluster/function_sharing.hpp"
#include "cluster/function_state.hpp"
#include "cluster/version_shares.hpp"
#include "proto/gpu_sharing.hpp"
#include "proto/precision.hpp"

namespace troupe::cluster {

namespace {

constexpr std::size_t kMaxName = 128;
constexpr std::size_t kMaxTensors = 4096;
constexpr Duration kLeastRunLimit = std::chrono::milliseconds(1);
constexpr Duration kMostRunLimit = std::chrono::hours(1);

absl::Status ValidateTensors(const char* what,
                             const google::protobuf::RepeatedPtrField<proto::TensorSpec>& specs) {
  if (static_cast<std::size_t>(specs.size()) > kMaxTensors) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", specs.size(), " ", what, "s; at most ",
                                                   kMaxTensors, " are supported"));
  }
  for (const proto::TensorSpec& spec : specs) {
    if (spec.name().empty() || spec.type() == proto::DATA_TYPE_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          absl::StrCat("an ", what, " '", spec.name(), "' lacks a name or a type"));
    }
    for (const std::int64_t size : spec.shape()) {
      if (size < -1) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " '", spec.name(), "' has a dimension of ", size));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateCompute(const proto::FunctionRecord& record) {
  if (!proto::Precision_IsValid(record.precision())) {
    return absl::InvalidArgumentError(absl::StrCat("this cluster knows no precision ",
                                                   static_cast<int>(record.precision()), "; there are ",
                                                   NamesIn(proto::kPrecisions)));
  }
  const Duration limit(record.run_limit_ns());
  if (limit != Duration::zero() && (limit < kLeastRunLimit || limit > kMostRunLimit)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run limit is ", record.run_limit_ns(), " ns; give a time from ", FormatDuration(kLeastRunLimit),
        " to ", FormatDuration(kMostRunLimit), ", or none to have it learned"));
  }
  return absl::OkStatus();
}

absl::Status ValidateRecord(const proto::FunctionRecord& record) {
  TROUPE_RETURN_IF_ERROR(ValidateName("function", record.key().name()));
  TROUPE_RETURN_IF_ERROR(ValidateSlo(record.slo()));
  if (!record.tenant().empty()) TROUPE_RETURN_IF_ERROR(ValidateName("tenant", record.tenant()));
  if (!IsSha256Hex(record.onnx_digest()) || !IsSha256Hex(record.model_digest())) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(record.key()), " names no imported model; upload its ONNX file first"));
  }
  TROUPE_RETURN_IF_ERROR(ValidateTensors("input", record.inputs()));
  TROUPE_RETURN_IF_ERROR(ValidateTensors("output", record.outputs()));
  TROUPE_RETURN_IF_ERROR(ValidateCompute(record));
  TROUPE_RETURN_IF_ERROR(ValidateState(record));
  return cluster::ValidateSharing(record);
}

}  // namespace

absl::Status ValidateName(const std::string& what, const std::string& name) {
  const auto plain = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  const bool good = !name.empty() && name.size() <= kMaxName && plain(name.front()) &&
                    std::all_of(name.begin(), name.end(),
                                [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", name.substr(0, kMaxName),
                                                 "' is not a valid name for a ", what,
                                                 "; a name begins with a letter or digit, goes on with "
                                                 "letters, digits, '.', '_' or '-', and has at most ",
                                                 kMaxName, " characters"));
}

absl::Status ValidateSlo(const proto::Slo& slo) {
  if (slo.deadline_ns() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the deadline is ", slo.deadline_ns(), " ns; give a positive one, or none"));
  }
  if (!(slo.percentile() >= 0 && slo.percentile() <= 100)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the percentile is ", slo.percentile(), "; give one above 0 and up to 100"));
  }
  return absl::OkStatus();
}

absl::StatusOr<proto::DeployFunction> FunctionRegistry::ValidateDeploy(
    const proto::DeployFunction& wish) const {
  proto::DeployFunction command = wish;
  proto::FunctionRecord& record = *command.mutable_record();
  TROUPE_RETURN_IF_ERROR(ValidateRecord(record));
  if (table_.size() >= limits_.max_functions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the cluster has ", table_.size(), " functions, its limit; remove some first"));
  }
  const std::string& name = record.key().name();
  TROUPE_ASSIGN_OR_RETURN(*record.mutable_key()->mutable_version(),
                          ChooseVersion(record.key().version(), table_.NewestVersion(name)));
  if (table_.Find(record.key()) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(Describe(record.key()),
                                                 " is deployed already; the next free version is ",
                                                 table_.NewestVersion(name) + 1));
  }
  if (record.slo().percentile() == 0) record.mutable_slo()->set_percentile(kDefaultPercentile);
  record.set_loaded(true);
  return command;
}

absl::StatusOr<proto::RemoveFunction> FunctionRegistry::ValidateRemove(
    const proto::RemoveFunction& wish) const {
  proto::RemoveFunction command = wish;
  if (wish.key().version().empty() && table_.VersionsOf(wish.key().name()) != nullptr) {
    command.mutable_key()->set_version(absl::StrCat(table_.NewestVersion(wish.key().name())));
  }
  const auto found = table_.FindServed(command.key());
  if (absl::IsNotFound(found.status())) return found.status();
  TROUPE_RETURN_IF_ERROR(
      CheckRemovable(*table_.VersionsOf(command.key().name()), *table_.Find(command.key())));
  return command;
}

absl::StatusOr<proto::SetFunctionLoaded> FunctionRegistry::ValidateLoaded(
    const proto::SetFunctionLoaded& wish) const {
  proto::SetFunctionLoaded command = wish;
  if (wish.key().version().empty() && table_.VersionsOf(wish.key().name()) != nullptr) {
    command.mutable_key()->set_version(absl::StrCat(table_.NewestVersion(wish.key().name())));
  }
  const auto found = table_.FindServed(command.key());
  if (absl::IsNotFound(found.status())) return found.status();
  return command;
}

absl::StatusOr<std::vector<proto::SetVersionShare>> FunctionRegistry::ValidateSplit(
    const proto::SplitFunction& wish) const {
  const auto* versions = table_.VersionsOf(wish.name());
  if (versions == nullptr)
    return absl::NotFoundError(absl::StrCat("there is no function '", wish.name(), "'; deploy it first"));
  return SplitVersions(*versions, wish);
}

absl::StatusOr<proto::SetFunctionSharing> FunctionRegistry::ValidateSharing(
    const proto::UpdateFunction& wish) const {
  proto::SetFunctionSharing command;
  *command.mutable_key() = wish.key();
  if (wish.key().version().empty() && table_.VersionsOf(wish.key().name()) != nullptr) {
    command.mutable_key()->set_version(absl::StrCat(table_.NewestVersion(wish.key().name())));
  }
  const auto found = table_.FindServed(command.key());
  if (absl::IsNotFound(found.status())) return found.status();
  proto::FunctionRecord changed = *table_.Find(command.key());
  TROUPE_ASSIGN_OR_RETURN(*changed.mutable_sharing(), SharingAfter(changed, wish));
  TROUPE_RETURN_IF_ERROR(cluster::ValidateSharing(changed));
  *command.mutable_sharing() = changed.sharing();
  return command;
}

void FunctionRegistry::Remember(const proto::FunctionKey& key, Revision revision) {
  TROUPE_CHECK(revision > revision_, "commands are applied in the order of their revisions");
  revision_ = revision;
  changes_.push_back({revision, key});
  while (changes_.size() > limits_.max_changes) {
    forgotten_ = changes_.front().revision;
    changes_.pop_front();
  }
}

void FunctionRegistry::Apply(const proto::DeployFunction& command, Revision revision) {
  TROUPE_CHECK(VersionNumber(command.record().key().version()) != 0,
               "a deployment without a version was applied");
  Remember(command.record().key(), revision);
  proto::FunctionRecord record = command.record();
  // As an earlier release stored it.
  if (record.sm_partition() > 0 && record.sharing().sm_partition() == 0)
    record.mutable_sharing()->set_sm_partition(record.sm_partition());
  record.clear_sm_partition();
  record.set_revision(revision);
  table_.Put(record);
}

void FunctionRegistry::Apply(const proto::RemoveFunction& command, Revision revision) {
  Remember(command.key(), revision);
  TROUPE_CHECK(table_.Remove(command.key()), "a removal of a function that is not there was applied");
}

void SetIn(proto::FunctionRecord& record, const proto::SetFunctionLoaded& command) {
  record.set_loaded(command.loaded());
}

void SetIn(proto::FunctionRecord& record, const proto::SetVersionShare& command) {
  record.set_share_percent(command.share_percent());
  record.set_role(command.role());
}

namespace {

// What a function that is scaled requests is the mean quota of its instances, rounded up; 0 as long as it has none.
void RequestByLoad(proto::FunctionRecord& record) {
  if (!proto::IsScaled(record.sharing())) return;
  std::uint32_t sum = 0;
  for (const auto& place : record.places()) sum += place.quota();
  const auto count = static_cast<std::uint32_t>(record.places_size());
  record.mutable_sharing()->set_quota_request(count == 0 ? 0 : (sum + count - 1) / count);
}

}  // namespace

void SetIn(proto::FunctionRecord& record, const proto::SetFunctionSharing& command) {
  *record.mutable_sharing() = command.sharing();
  RequestByLoad(record);
}

void SetIn(proto::FunctionRecord& record, const proto::SetFunctionPlaces& command) {
  *record.mutable_places() = command.places();
  RequestByLoad(record);
}

template <class Command>
void FunctionRegistry::ChangeRecord(const Command& command, Revision revision) {
  const proto::FunctionRecord* found = command.key().version().empty() ? nullptr : table_.Find(command.key());
  TROUPE_CHECK(found != nullptr, "a change of a function that is not there was applied");
  Remember(command.key(), revision);
  proto::FunctionRecord record = *found;
  SetIn(record, command);
  record.set_revision(revision);
  table_.Put(record);
}

void FunctionRegistry::Apply(const proto::SetFunctionLoaded& command, Revision revision) {
  ChangeRecord(command, revision);
}

void FunctionRegistry::Apply(const proto::SetVersionShare& command, Revision revision) {
  ChangeRecord(command, revision);
}

void FunctionRegistry::Apply(const proto::SetFunctionSharing& command, Revision revision) {
  ChangeRecord(command, revision);
}

void FunctionRegistry::Apply(const proto::SetFunctionPlaces& command, Revision revision) {
  ChangeRecord(command, revision);
}

void FunctionRegistry::NoteProblem(const proto::FunctionKey& key, std::string problem) {
  const proto::FunctionRecord* found = table_.Find(key);
  TROUPE_CHECK(found != nullptr, "a problem of a function that is not there was noted");
  proto::FunctionRecord record = *found;
  record.set_problem(std::move(problem));
  table_.Put(record);
}

void FunctionRegistry::BeginAt(Revision revision) {
  TROUPE_CHECK(revision >= revision_, "revisions only grow");
  revision_ = forgotten_ = revision;
  changes_.clear();
}

proto::ClusterUpdate FunctionRegistry::SnapshotAfter(const std::string& after) const {
  proto::ClusterUpdate update;
  update.set_revision(revision_);
  update.set_snapshot(true);
  update.set_more_after(table_.AddTo(update, after, limits_.part_bytes));
  return update;
}

proto::ClusterUpdate FunctionRegistry::ChangesSince(Revision since) const {
  if (since == 0 || since < forgotten_ || since > revision_) return SnapshotAfter("");
  proto::ClusterUpdate update;
  update.set_revision(revision_);
  update.set_since(since);
  const auto first = std::partition_point(changes_.begin(), changes_.end(),
                                          [&](const Change& change) { return change.revision <= since; });
  std::set<std::pair<std::string, std::string>> seen;
  for (auto it = first; it != changes_.end(); ++it) {
    if (!seen.emplace(it->key.name(), it->key.version()).second) continue;
    if (const proto::FunctionRecord* record = table_.Find(it->key)) {
      *update.add_functions() = *record;
    } else {
      *update.add_removed() = it->key;
    }
  }
  return update;
}

}  // namespace troupe::cluster
