#include "storage/metadata_store.hpp"

#include <future>
#include <utility>

#include "base/check.hpp"

namespace troupe::storage {

const char* TableName(Table table) {
  switch (table) {
    case Table::kSettings:
      return "settings";
    case Table::kFunctions:
      return "functions";
    case Table::kWorkflows:
      return "workflows";
    case Table::kRuns:
      return "runs";
    case Table::kSteps:
      return "steps";
    case Table::kNodes:
      return "nodes";
    case Table::kBlobs:
      return "blobs";
    case Table::kLog:
      return "log";
  }
  TROUPE_CHECK(false, "a table without a name");
}

std::string SequenceKey(std::uint64_t sequence) {
  std::string key(8, '\0');
  for (int i = 7; i >= 0; --i, sequence >>= 8) key[static_cast<std::size_t>(i)] = static_cast<char>(sequence);
  return key;
}

void Batch::Put(Table table, std::string key, std::string value) {
  bytes_ += Bytes(key.size() + value.size());
  mutations_.push_back({table, std::move(key), std::move(value)});
}

void Batch::Put(Table table, std::string key, const google::protobuf::MessageLite& message) {
  Put(table, std::move(key), message.SerializeAsString());
}

void Batch::Delete(Table table, std::string key) {
  bytes_ += Bytes(key.size());
  mutations_.push_back({table, std::move(key), std::nullopt});
}

absl::Status ValidateBatch(const Batch& batch) {
  if (batch.bytes() > kMaxBatchBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a metadata batch of ", FormatBytes(batch.bytes()),
                                                   " exceeds the limit of ", FormatBytes(kMaxBatchBytes),
                                                   ": keep large values as blobs"));
  }
  for (const Batch::Mutation& mutation : batch.mutations()) {
    if (mutation.key.empty() || mutation.key.size() > kMaxKeyBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a key of ", mutation.key.size(), " bytes in table ",
                                                     TableName(mutation.table), ": keys have 1 to ",
                                                     kMaxKeyBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status CommitAndWait(MetadataStore& store, Batch batch) {
  std::promise<absl::Status> promise;
  std::future<absl::Status> future = promise.get_future();
  store.Commit(std::move(batch), [&promise](absl::Status status) { promise.set_value(std::move(status)); });
  return future.get();
}

absl::Status NotThatMessage(Table table, std::string_view key, std::string_view type) {
  return absl::DataLossError(absl::StrCat("record '", std::string(key), "' of table ", TableName(table),
                                          " is not a valid ", std::string(type)));
}

}  // namespace troupe::storage
