// CHANGES: what is to be written to the store of the cluster's manager, in order; it becomes visible and
// durable together, or not at all. The manager's actor makes a batch of the store of it.
#pragma once

#include <google/protobuf/message_lite.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster {

// The tables of the store that the manager writes.
enum class Table { kSettings, kFunctions, kWorkflows, kRuns, kSteps };

struct Change {
  Table table{};
  std::string key{};
  std::optional<std::string> value{};  // absent: the record is deleted

  bool operator==(const Change&) const = default;
};

class Changes {
 public:
  void Put(Table table, std::string key, std::string value) {
    all_.push_back({table, std::move(key), std::move(value)});
  }
  void Put(Table table, std::string key, const google::protobuf::MessageLite& record) {
    Put(table, std::move(key), record.SerializeAsString());
  }
  void Delete(Table table, std::string key) { all_.push_back({table, std::move(key), std::nullopt}); }
  void Add(const Changes& others) { all_.insert(all_.end(), others.all_.begin(), others.all_.end()); }
  [[nodiscard]] bool empty() const { return all_.empty(); }
  [[nodiscard]] const std::vector<Change>& all() const { return all_; }

 private:
  std::vector<Change> all_;
};

}  // namespace troupe::cluster
