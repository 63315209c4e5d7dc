// USAGE LEDGER: what functions used at this node, from its workers' pages to the statements that the manager
// stores. Pure.
//
//   page -(read)-> gathered -(made)-> open statement -(file saved)-> told -(stored)-> gone
//
// A page's counts only grow, and the ledger remembers in the same file what it has read of each, so that a
// daemon that starts again reads the difference: nothing is lost and nothing counts twice. A statement is told
// only when it lies in the file, and never changes, so that the manager knows it by its number.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/units.hpp"
#include "proto/function.pb.h"
#include "proto/usage.pb.h"

namespace troupe::node {

class UsageLedger {
 public:
  // `kept`: the file, with its ledger's name. `fresh`: the ledger was made for this start, so that a page that is
  // there already was counted by a ledger that was lost, and is read from where it stands.
  UsageLedger(proto::NodeUsage kept, bool fresh);

  // All pages that are there, read `elapsed` after the last time. Returns what could not be believed, as
  // sentences.
  [[nodiscard]] std::vector<std::string> Read(const std::vector<proto::MeterReading>& pages, Duration elapsed,
                                              std::int64_t day);
  void AddHost(const proto::FunctionRecord& function, std::uint64_t kib_ms, std::int64_t day);

  // The file, when it has to be written: a statement is made for it when the last one is stored. One at a time,
  // until Saved.
  [[nodiscard]] std::optional<proto::NodeUsage> TakeFile();
  // Returns the pages that are not needed any more: their workers have ended, and the file has their last counts.
  [[nodiscard]] std::vector<std::string> Saved(bool well);

  // The statement that the manager has to store; null: there is none, or it is not in the file yet.
  [[nodiscard]] const proto::UsageStatement* Open() const;
  void Stored(std::uint64_t sequence);

  [[nodiscard]] const std::string& name() const { return file_.ledger(); }
  // By tenant and function, since this ledger object was made.
  [[nodiscard]] const std::map<std::pair<std::string, std::string>, proto::UsageAmount>& totals() const {
    return totals_;
  }

 private:
  using Key = std::tuple<std::string, std::string, std::int64_t>;  // tenant, function, day
  struct Page {
    std::map<std::string, proto::MeterCount> counts{};  // by key
    Duration age{};
    bool closed = false;
    bool doubted = false;  // it was said that not all of it is believed
  };
  void ReadPage(const proto::MeterReading& reading, Duration elapsed, std::int64_t day,
                std::vector<std::string>& doubts);
  void Add(const proto::UsageAmount& more);
  void Gather(const proto::UsageAmount& more);
  void MakeStatement();
  [[nodiscard]] proto::NodeUsage File() const;

  proto::NodeUsage file_;  // name, number, open statement
  std::map<Key, proto::UsageAmount> gathered_;
  std::map<std::string, Page> pages_;
  std::map<std::pair<std::string, std::string>, proto::UsageAmount> totals_;
  bool fresh_;
  bool changed_;
  bool saving_ = false;
  std::uint64_t saved_ = 0;           // the last statement that is in the file
  std::vector<std::string> leaving_;  // closed pages whose last counts are in the file that is being saved
};

}  // namespace troupe::node
