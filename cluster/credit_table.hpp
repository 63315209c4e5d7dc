// CREDIT TABLE: a router's belief about the nodes: what each grants, holds and has been given. Owned by the
// request book.  grant -> limit;  Take at Send;  Return at the reply. A node without a current grant takes
// nothing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "proto/request.pb.h"

namespace troupe::cluster {

struct NodeCredit {
  std::uint64_t epoch = 0;
  std::uint64_t limit = 0;
  std::uint64_t in_flight = 0;
  bool draining = false;
  bool granted = false;  // false after a refusal that only a new grant mends
  std::set<std::string> adopted;
  std::set<std::string> resident;

  [[nodiscard]] bool Open() const { return granted && !draining && in_flight < limit; }
};

class CreditTable {
 public:
  // Replaces what was known of the node. False: the grant is of an older epoch and was ignored.
  bool Apply(const proto::CreditGrant& grant);
  void Remove(const std::string& node);
  void Take(const std::string& node);
  // Nothing happens for a node that was removed meanwhile.
  void Return(const std::string& node);
  // The node refused: take no more until its next grant.
  void Close(const std::string& node);
  // It has just said that it does not hold this model.
  void Disown(const std::string& node, const std::string& model);
  void SetResident(const std::string& node, const std::string& model);

  [[nodiscard]] const NodeCredit* Find(const std::string& node) const;
  [[nodiscard]] const std::map<std::string, NodeCredit>& nodes() const { return nodes_; }
  // Nodes that hold a host copy of the model, or null.
  [[nodiscard]] const std::set<std::string>* Holders(const std::string& model) const;
  [[nodiscard]] std::uint64_t TotalLimit() const;

 private:
  void Unindex(const std::string& node, const NodeCredit& credit);

  std::map<std::string, NodeCredit> nodes_;
  std::map<std::string, std::set<std::string>> holders_;
};

}  // namespace troupe::cluster
