// METERING: what functions used at this node is read once a second, kept in a file, and told to the manager with
// heartbeats. What is decided is the ledger's (usage_ledger); this part has files read and written.
#pragma once

#include <optional>
#include <string>

#include "node/events.hpp"
#include "node/usage/usage_ledger.hpp"
#include "proto/admin.pb.h"

namespace troupe::node {

struct HeldRequest;
struct NodeSettings;
struct Parts;

class Metering {
 public:
  Metering(Parts& parts, const NodeSettings& settings);

  void On(const Started& event);
  void On(const MetersRead& event);
  void On(const UsageSaved& event);
  void OnTimer();

  // What the next heartbeat says; `stored` is the last statement that the manager has stored.
  void Report(std::uint64_t stored, proto::MemberReport& report);
  void Describe(proto::NodeDescription& node) const;
  // The payer of a request's orders; empty for what the node runs for a trial of its own, which is not the user's.
  [[nodiscard]] std::string PayerOf(const HeldRequest& request) const;
  // The payer of a function's orders; empty when this node does not meter.
  [[nodiscard]] std::string PayerOf(const proto::FunctionRecord* function, const std::string& name) const;

 private:
  void CountHost(std::int64_t day);
  void Save();

  Parts& parts_;
  std::optional<UsageLedger> ledger_;  // nothing: this node does not meter
  Time last_read_{};
  std::int64_t unix_ns_ = 0;  // at the last reading
  Time last_told_{};
  bool failed_ = false;  // the last save
};

}  // namespace troupe::node
