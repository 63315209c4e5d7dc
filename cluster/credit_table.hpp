// CREDIT TABLE: what a router believes of the nodes: what each one grants, holds and has been given. The
// request table owns it. A node's grant sets its limit, each request that is sent takes one credit, and its
// reply gives the credit back. A node without a current grant takes nothing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "proto/request.pb.h"

namespace troupe::cluster {

struct NodeCredit {
  std::uint64_t epoch = 0;
  std::uint64_t grant = 0;  // the number of the last one; 0: one is missing, so that the lists may be wrong
  std::uint64_t limit = 0;
  std::uint64_t in_flight = 0;
  bool draining = false;
  Duration others{};           // what requests of other routers take of its GPUs, as the node told last
  std::uint32_t fit_gpus = 0;  // 0: it has not told
  Time closed_until{};         // it refused a request
  std::set<std::string> adopted;
  std::set<std::string> resident;

  [[nodiscard]] bool Open(Time now) const { return !draining && in_flight < limit && closed_until <= now; }
};

class CreditTable {
 public:
  // Replaces what was known of the node but its requests in flight, which it has still after it has joined
  // again. False: the grant is of an older epoch and was ignored.
  bool Apply(const proto::CreditGrant& grant);
  // The models that applying it would add to what the node holds, or take from that.
  [[nodiscard]] std::vector<std::string> ComeOrGo(const proto::CreditGrant& grant) const;
  void Remove(const std::string& node);
  void Take(const std::string& node);
  // Nothing happens for a node that was removed meanwhile.
  void Return(const std::string& node);
  void Close(const std::string& node, Time until);
  // What it has told is not as it was told: it is to tell all of it with its next answer to a hello.
  void AskAnew(const std::string& node);
  // It has just run this model.
  void SetResident(const std::string& node, const std::string& model);

  [[nodiscard]] const NodeCredit* Find(const std::string& node) const;
  [[nodiscard]] const std::map<std::string, NodeCredit>& nodes() const { return nodes_; }
  // Those that do not drain.
  [[nodiscard]] std::size_t CountTaking() const { return taking_; }
  // A node that does not drain holds a host copy of the model.
  [[nodiscard]] bool Servable(const std::string& model) const;
  // Nodes that hold a host copy of the model, or null.
  [[nodiscard]] const std::set<std::string>* Holders(const std::string& model) const;

 private:
  void Unindex(const std::string& node, const NodeCredit& credit);
  void NoHolder(const std::string& model, const std::string& node);

  std::map<std::string, NodeCredit> nodes_;
  std::size_t taking_ = 0;  // of them, those that do not drain
  std::map<std::string, std::set<std::string>> holders_;
};

}  // namespace troupe::cluster
