// The seam to durable metadata: typed tables of framed records, changed by batches that are committed as one.
// Each table has one writer (the cluster manager, a node's cache, a workflow run), which alone reads it, at
// its start.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/units.hpp"
#include "google/protobuf/message_lite.h"

namespace troupe::storage {

// A table is a column family. The number is part of each record's checksum: it is never reused.
enum class Table : std::uint8_t {
  kSettings = 1,   // cluster id and other single records
  kFunctions = 2,  // "name/version" -> FunctionRecord
  kWorkflows = 3,  // "name/version" -> WorkflowRecord
  kRuns = 4,       // run -> StartRun, FinishRun
  kSteps = 5,      // "run/step" -> CommitStep
  kNodes = 6,      // name -> MemberRecord
  kBlobs = 7,      // digest -> what refers to it
  kLog = 8,        // SequenceKey -> Event or command
};
inline constexpr Table kAllTables[] = {Table::kSettings, Table::kFunctions, Table::kWorkflows, Table::kRuns,
                                       Table::kSteps,    Table::kNodes,     Table::kBlobs,     Table::kLog};
[[nodiscard]] const char* TableName(Table table);

// A number as a key whose byte order is the order of the numbers.
[[nodiscard]] std::string SequenceKey(std::uint64_t sequence);

// Changes that become visible and durable together, in this order.
class Batch {
 public:
  struct Mutation {
    Table table;
    std::string key;
    std::optional<std::string> value;  // absent: delete
  };

  void Put(Table table, std::string key, std::string value);
  void Put(Table table, std::string key, const google::protobuf::MessageLite& message);
  void Delete(Table table, std::string key);
  [[nodiscard]] bool empty() const { return mutations_.empty(); }
  [[nodiscard]] std::span<const Mutation> mutations() const { return mutations_; }
  [[nodiscard]] Bytes bytes() const { return bytes_; }  // of keys and values

 private:
  std::vector<Mutation> mutations_;
  Bytes bytes_;
};

// What a commit of one batch may be; more is InvalidArgument.
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr Bytes kMaxBatchBytes = MiB(32);
[[nodiscard]] absl::Status ValidateBatch(const Batch& batch);

// Lifecycle: made before the actors, destroyed after them; the destructor finishes what was queued.
// Threads: any; all members may be called at the same time.
class MetadataStore {
 public:
  // OK: the batch is on disk (fdatasync has returned). Any error: it was not acknowledged, and whether it
  // will be there later is unknown, so a retry must be idempotent.
  using CommitDone = std::function<void(absl::Status)>;
  // False ends the scan early.
  using ScanCallback = std::function<bool(std::string_view key, std::string_view value)>;

  virtual ~MetadataStore() = default;

  // Never blocks. `done` is called exactly once: on the commit thread, in the order of the Commit calls; or,
  // for a batch that is refused (invalid, or the queue is full: ResourceExhausted), on this thread before
  // Commit returns. It must not block and must not throw; an actor sends itself a message.
  virtual void Commit(Batch batch, CommitDone done) = 0;

  // See what has been committed, never a part of a batch. NotFound: no such key. DataLoss: a record that
  // fails its checksum; it names the table and the key.
  [[nodiscard]] virtual absl::StatusOr<std::string> Get(Table table, std::string_view key) const = 0;
  // Keys that begin with `prefix`, in byte order, from one consistent snapshot.
  [[nodiscard]] virtual absl::Status Scan(Table table, std::string_view prefix,
                                          const ScanCallback& callback) const = 0;
};

// Commits and waits. For start-up, tools and tests: never inside an actor.
[[nodiscard]] absl::Status CommitAndWait(MetadataStore& store, Batch batch);

[[nodiscard]] absl::Status NotThatMessage(Table table, std::string_view key, std::string_view type);

template <typename Message>
[[nodiscard]] absl::StatusOr<Message> GetMessage(const MetadataStore& store, Table table,
                                                 std::string_view key) {
  TROUPE_ASSIGN_OR_RETURN(const std::string value, store.Get(table, key));
  Message message;
  if (!message.ParseFromString(value)) return NotThatMessage(table, key, message.GetTypeName());
  return message;
}

// Calls `each(key, message)` for every record under `prefix`; stops at the first that does not parse.
template <typename Message, typename Each>
[[nodiscard]] absl::Status ScanMessages(const MetadataStore& store, Table table, std::string_view prefix,
                                        Each&& each) {
  absl::Status parsed;
  TROUPE_RETURN_IF_ERROR(store.Scan(table, prefix, [&](std::string_view key, std::string_view value) {
    Message message;
    if (!message.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
      parsed = NotThatMessage(table, key, message.GetTypeName());
      return false;
    }
    each(key, std::move(message));
    return true;
  }));
  return parsed;
}

}  // namespace troupe::storage
