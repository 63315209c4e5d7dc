#include "cluster/credit_table.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace troupe::cluster {

namespace {

// Grants come many times a second and name every model in the order of the set: most change nothing.
template <class Names>
bool Same(const std::set<std::string>& known, const Names& names) {
  return std::equal(known.begin(), known.end(), names.begin(), names.end());
}

}  // namespace

void CreditTable::Unindex(const std::string& node, const NodeCredit& credit) {
  for (const std::string& model : credit.adopted) {
    const auto it = holders_.find(model);
    it->second.erase(node);
    if (it->second.empty()) holders_.erase(it);
  }
}

bool CreditTable::Apply(const proto::CreditGrant& grant) {
  const auto [it, added] = nodes_.try_emplace(grant.node());
  NodeCredit& credit = it->second;
  if (!added && grant.node_epoch() < credit.epoch) return false;
  TROUPE_CHECK(added || grant.node_epoch() == credit.epoch,
               "the node has a new life; remove the old one first");
  credit.epoch = grant.node_epoch();
  credit.limit = grant.limit();
  credit.draining = grant.draining();
  credit.closed_until = Time();
  if (!Same(credit.resident, grant.resident()))
    credit.resident = {grant.resident().begin(), grant.resident().end()};
  if (added || !Same(credit.adopted, grant.adopted())) {
    Unindex(grant.node(), credit);
    credit.adopted = {grant.adopted().begin(), grant.adopted().end()};
    for (const std::string& model : credit.adopted) holders_[model].insert(grant.node());
  }
  return true;
}

void CreditTable::Remove(const std::string& node) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  Unindex(node, it->second);
  nodes_.erase(it);
}

void CreditTable::Take(const std::string& node) {
  const auto it = nodes_.find(node);
  TROUPE_CHECK(it != nodes_.end(), "a credit was taken of a node that is not known");
  ++it->second.in_flight;
}

void CreditTable::Return(const std::string& node) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  TROUPE_CHECK(it->second.in_flight > 0, "a credit came back that nobody took");
  --it->second.in_flight;
}

void CreditTable::Close(const std::string& node, Time until) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end()) it->second.closed_until = std::max(it->second.closed_until, until);
}

void CreditTable::SetResident(const std::string& node, const std::string& model) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end()) it->second.resident.insert(model);
}

const NodeCredit* CreditTable::Find(const std::string& node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &it->second;
}

const std::set<std::string>* CreditTable::Holders(const std::string& model) const {
  const auto it = holders_.find(model);
  return it == holders_.end() ? nullptr : &it->second;
}

}  // namespace troupe::cluster
