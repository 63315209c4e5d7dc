#include "cluster/credit_table.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/check.hpp"

namespace troupe::cluster {

namespace {

// A node has no more GPUs; what it tells beyond is ignored.
constexpr std::uint32_t kMostGpus = 1024;

using Names = google::protobuf::RepeatedPtrField<std::string>;

// The models that a list of changes adds to those that are known, or takes away from them; no other model is looked at.
std::vector<std::string> Changed(const std::set<std::string>& known, const proto::ModelList& list) {
  std::set<std::string> changed;
  for (const auto& model : list.digests())
    if (!known.contains(model)) changed.insert(model);
  for (const auto& model : list.removed()) {
    // A list that names a model as both says that it has gone.
    if (known.contains(model)) {
      changed.insert(model);
    } else {
      changed.erase(model);
    }
  }
  return {changed.begin(), changed.end()};
}

// The models that applying a grant's list to those that are known adds or takes away. `anew`: in a new life
// of the node, in which nothing was told before.
std::vector<std::string> Difference(const std::set<std::string>& known, const proto::ModelList& list,
                                    bool anew) {
  if (list.added() && !anew) return Changed(known, list);
  std::vector<std::string> changed;
  const Names& names = list.digests();
  const auto compare = [&](const auto& sorted) {
    std::set_symmetric_difference(known.begin(), known.end(), sorted.begin(), sorted.end(),
                                  std::back_inserter(changed));
  };
  // Peers keep the order of the set; one that does not is believed all the same.
  if (std::adjacent_find(names.begin(), names.end(), std::greater_equal<>()) == names.end()) {
    compare(names);
  } else {
    compare(std::set<std::string>(names.begin(), names.end()));
  }
  return changed;
}

}  // namespace

void CreditTable::Unindex(const std::string& node, const NodeCredit& credit) {
  for (const std::string& model : credit.adopted) NoHolder(model, node);
}

bool CreditTable::Apply(const proto::CreditGrant& grant) {
  const auto [it, added] = nodes_.try_emplace(grant.node());
  NodeCredit& credit = it->second;
  if (!added && grant.node_epoch() < credit.epoch) return false;
  // By the epoch that is known still.
  const std::vector<std::string> adopted = ComeOrGo(grant);
  const bool anew = grant.node_epoch() > credit.epoch;
  const bool follows = grant.number() == 1 || (!anew && grant.number() == credit.grant + 1);
  // A grant that tells of others' work alone does not say that the node takes requests again.
  const bool reopens = grant.has_adopted() || grant.has_resident() || grant.limit() != credit.limit ||
                       grant.draining() != credit.draining;
  if (anew || reopens) credit.closed_until = Time();
  credit.epoch = grant.node_epoch();
  credit.grant = follows ? grant.number() : 0;
  credit.limit = grant.limit();
  if (!added && !credit.draining) --taking_;
  if (!grant.draining()) ++taking_;
  credit.draining = grant.draining();
  credit.others = std::clamp<Duration>(Duration(grant.others_ns()), Duration(), std::chrono::hours(1));
  credit.fit_gpus = std::min(grant.fit_gpus(), kMostGpus);
  if (grant.has_resident() || anew) {
    for (const std::string& model : Difference(credit.resident, grant.resident(), anew))
      if (credit.resident.erase(model) == 0) credit.resident.insert(model);
  }
  for (const std::string& model : adopted) {
    if (credit.adopted.insert(model).second) {
      holders_[model].insert(grant.node());
    } else {
      credit.adopted.erase(model);
      NoHolder(model, grant.node());
    }
  }
  return true;
}

bool CreditTable::Servable(const std::string& model) const {
  const auto* holders = Holders(model);
  return holders != nullptr &&
         std::ranges::any_of(*holders, [&](const auto& node) { return !nodes_.at(node).draining; });
}

std::vector<std::string> CreditTable::ComeOrGo(const proto::CreditGrant& grant) const {
  const auto it = nodes_.find(grant.node());
  static const NodeCredit none;
  const NodeCredit& known = it == nodes_.end() ? none : it->second;
  const bool anew = grant.node_epoch() > known.epoch;
  if (!grant.has_adopted() && !anew) return {};
  return Difference(known.adopted, grant.adopted(), anew);
}

void CreditTable::NoHolder(const std::string& model, const std::string& node) {
  const auto it = holders_.find(model);
  it->second.erase(node);
  if (it->second.empty()) holders_.erase(it);
}

void CreditTable::Remove(const std::string& node) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  Unindex(node, it->second);
  if (!it->second.draining) --taking_;
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
  TROUPE_CHECK(it->second.in_flight > 0, "a credit came back that was not taken");
  --it->second.in_flight;
}

void CreditTable::Close(const std::string& node, Time until) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end()) it->second.closed_until = std::max(it->second.closed_until, until);
}

void CreditTable::AskAnew(const std::string& node) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end()) it->second.grant = 0;
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
