#include "storage/store_check.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "proto/access.pb.h"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"
#include "proto/function_profile.pb.h"
#include "proto/workflow.pb.h"
#include "storage/backup_list.hpp"
#include "storage/directory_lock.hpp"
#include "storage/rocks_database.hpp"

namespace troupe::storage {
namespace {

namespace fs = std::filesystem;

// An empty message of the record's type; null: text, or bytes without a reader.
std::unique_ptr<google::protobuf::Message> MessageOf(Table table, std::string_view key) {
  switch (table) {
    case Table::kSettings:
      if (key.starts_with("api-key/")) return std::make_unique<proto::ApiKeyRecord>();
      if (key.starts_with("profile/")) return std::make_unique<proto::FunctionProfile>();
      if (key.starts_with("profiling/")) return std::make_unique<proto::ProfilingExperiment>();
      if (key.starts_with("state-home/")) return std::make_unique<proto::PlacementRecord>();
      return nullptr;
    case Table::kFunctions:
      return std::make_unique<proto::FunctionRecord>();
    case Table::kWorkflows:
      return std::make_unique<proto::WorkflowRecord>();
    case Table::kRuns:
      return std::make_unique<proto::RunRecord>();
    case Table::kSteps:
      return std::make_unique<proto::CommitStep>();
    case Table::kNodes:
      return std::make_unique<proto::MemberRecord>();
    case Table::kLog:
      return std::make_unique<proto::Event>();
    case Table::kBlobs:
      return nullptr;
  }
  return nullptr;
}

// A store that no other process has open meanwhile. A backup has no owner.
struct Held {
  std::string metadata;
  bool backup = false;
  std::vector<DirectoryLock> locks;
};

// A backup gets its list last, and its name then. Where a manager has been there is a lock, which no backup
// has.
absl::Status CheckFinished(const std::string& data) {
  std::error_code error;
  if (fs::exists(data + "/metadata/" + DirectoryLock::kFile, error)) return absl::OkStatus();
  fs::path place(data);
  if (!place.has_filename()) place = place.parent_path();
  if (place.extension() == ".partial") {
    return absl::FailedPreconditionError(absl::StrCat(
        data, " is a backup that is not finished: one is being made, or was cut short; wait for ",
        place.replace_extension().string(), ", or make another one"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      data,
      " has no file BACKUP, and no manager ever had it open: a backup that is not finished, or was cut "
      "short; use another one"));
}

absl::StatusOr<Held> Hold(const std::string& data) {
  Held held{data + "/metadata", false, {}};
  std::error_code error;
  if (!fs::is_directory(held.metadata + "/db", error)) {
    return absl::NotFoundError(
        absl::StrCat("there are no metadata of Troupe's in ", data,
                     " (no directory metadata/db): name a manager's --data, or a backup"));
  }
  held.backup = fs::exists(data + "/BACKUP", error);
  if (held.backup) return held;
  TROUPE_RETURN_IF_ERROR(CheckFinished(data));
  for (const char* part : {"/metadata", "/models"}) {
    if (!fs::is_directory(data + part, error)) continue;
    TROUPE_ASSIGN_OR_RETURN(auto lock, DirectoryLock::Acquire(data + part));
    held.locks.push_back(std::move(lock));
  }
  return held;
}

class Check {
 public:
  explicit Check(std::string data) : data_(std::move(data)) {}

  absl::StatusOr<CheckReport> Run() {
    TROUPE_ASSIGN_OR_RETURN(const Held held, Hold(data_));
    if (held.backup) ReadList();
    const auto marks = ReadMarks(held.metadata);
    if (absl::IsFailedPrecondition(marks.status())) return marks.status();
    if (marks.ok()) ReadMetadata(held.metadata, *marks);
    if (!marks.ok()) Note(marks.status());
    ReadModels();
    for (const auto& [digest, function] : wanted_)
      if (!models_.contains(digest))
        report_.problems.push_back(absl::StrCat("function '", function, "' needs object ", digest,
                                                ", which is not there: deploy it again"));
    return report_;
  }

 private:
  void Note(const absl::Status& status) {
    if (!status.ok()) report_.problems.emplace_back(status.message());
  }

  void ReadMetadata(const std::string& metadata, const StoreMarks& marks) {
    auto judged = JudgeStore(metadata, marks);
    Note(judged.status());
    if (judged.ok()) report_.recovery = *judged;
    const auto database = RocksDatabase::Open(metadata + "/db", RocksDatabase::Mode::kReadOnly);
    if (!database.ok()) return Note(database.status());
    report_.recovery.sequence = (*database)->sequence();
    Note((*database)->VerifyFiles());
    for (const Table table : kAllTables) {
      Note((*database)->Scan(table, "", [&](std::string_view key, std::string_view value) {
        ReadRecord(table, key, value);
        return true;
      }));
    }
  }

  void ReadRecord(Table table, std::string_view key, std::string_view value) {
    const auto message = MessageOf(table, key);
    if (message != nullptr && !message->ParseFromArray(value.data(), static_cast<int>(value.size())))
      return Note(NotThatMessage(table, key, message->GetTypeName()));
    ++report_.records[table];
    if (table != Table::kFunctions) return;
    const auto& function = static_cast<const proto::FunctionRecord&>(*message);
    for (const std::string* digest : {&function.model_digest(), &function.weights_digest()})
      if (!digest->empty()) wanted_.emplace(*digest, function.key().name());
  }

  void ReadModels() {
    std::error_code error;
    fs::recursive_directory_iterator it(data_ + "/models/objects", error);
    for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (!it->is_regular_file() || !IsSha256Hex(name)) continue;
      const auto file = DigestFile(it->path().string());
      if (!file.ok()) {
        Note(file.status());
      } else if (file->digest != name) {
        report_.problems.push_back(
            absl::StrCat("object ", name, " is damaged: its bytes have digest ", file->digest,
                         "; a manager that reads it sets it aside: deploy its functions again"));
      } else {
        models_.insert(name);
        ++report_.models;
        report_.model_bytes += file->size;
      }
    }
  }

  void ReadList() {
    const auto list = ReadBackupList(data_);
    if (!list.ok()) return Note(list.status());
    for (const auto& file : list->files) {
      const auto found = DigestFile(absl::StrCat(data_, "/", file.path));
      if (!found.ok()) {
        Note(found.status());
      } else if (found->digest != file.digest) {
        report_.problems.push_back(
            absl::StrCat(file.path, " does not have the digest that the backup's list says"));
      }
    }
  }

  const std::string data_;
  CheckReport report_;
  std::set<std::string> models_;               // that are whole
  std::map<std::string, std::string> wanted_;  // object -> a function that needs it
};

std::string Quoted(std::string_view text) {
  google::protobuf::Value value;
  value.set_string_value(std::string(text));
  std::string json;
  static_cast<void>(google::protobuf::util::MessageToJsonString(value, &json));
  return json;
}

bool IsText(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

std::string JsonOf(Table table, std::string_view key, std::string_view value) {
  const auto message = MessageOf(table, key);
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  if (message != nullptr && message->ParseFromArray(value.data(), static_cast<int>(value.size())) &&
      google::protobuf::util::MessageToJsonString(*message, &json, options).ok())
    return json;
  if (message == nullptr && IsText(value)) return Quoted(value);
  return absl::StrCat("{\"hex\":\"", absl::BytesToHexString(absl::string_view(value.data(), value.size())),
                      "\"}");
}

}  // namespace

absl::StatusOr<CheckReport> CheckStore(const std::string& data) {
  return Check(data).Run();
}

absl::Status DumpStore(const std::string& data, std::optional<Table> table, const std::string& prefix,
                       const std::function<void(const std::string&)>& line) {
  TROUPE_ASSIGN_OR_RETURN(const Held held, Hold(data));
  TROUPE_RETURN_IF_ERROR(ReadMarks(held.metadata).status());
  TROUPE_ASSIGN_OR_RETURN(const auto database,
                          RocksDatabase::Open(held.metadata + "/db", RocksDatabase::Mode::kReadOnly));
  for (const Table each : kAllTables) {
    if (table && *table != each) continue;
    TROUPE_RETURN_IF_ERROR(database->Scan(each, prefix, [&](std::string_view key, std::string_view value) {
      const std::string name =
          IsText(key) ? std::string(key) : absl::BytesToHexString(absl::string_view(key.data(), key.size()));
      line(absl::StrCat("{\"table\":\"", TableName(each), "\",\"key\":", Quoted(name),
                        ",\"value\":", JsonOf(each, key, value), "}"));
      return true;
    }));
  }
  return absl::OkStatus();
}

absl::StatusOr<Table> FindTable(const std::string& name) {
  for (const Table table : kAllTables)
    if (name == TableName(table)) return table;
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no table '", name, "': ", absl::StrJoin(kAllTables, ", ", [](std::string* out, Table table) {
        out->append(TableName(table));
      })));
}

}  // namespace troupe::storage
