#include "node/requests/credit_ledger.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace troupe::node {

std::vector<Grant> SplitCredits(std::uint64_t capacity, std::vector<RouterDemand> routers) {
  std::vector<Grant> grants;
  if (routers.empty()) return grants;
  std::sort(routers.begin(), routers.end(), [](const auto& a, const auto& b) { return a.router < b.router; });
  for (const RouterDemand& router : routers) grants.push_back({router.router, 0});
  std::uint64_t left = capacity;
  // One each, the largest demand first when they do not go round.
  std::vector<std::size_t> by_demand(routers.size());
  for (std::size_t i = 0; i < by_demand.size(); ++i) by_demand[i] = i;
  std::stable_sort(by_demand.begin(), by_demand.end(),
                   [&](std::size_t a, std::size_t b) { return routers[a].demand > routers[b].demand; });
  for (const std::size_t i : by_demand) {
    if (left == 0) return grants;
    grants[i].limit = 1;
    --left;
  }
  // The rest follows what is asked for beyond that; without any demand it is shared equally.
  double total = 0;
  for (const RouterDemand& router : routers) total += static_cast<double>(router.demand);
  const auto weight = [&](std::size_t i) {
    return total == 0 ? 1.0 / static_cast<double>(routers.size())
                      : static_cast<double>(routers[i].demand) / total;
  };
  std::vector<std::pair<double, std::size_t>> remainders;
  const std::uint64_t rest = left;
  for (const std::size_t i : by_demand) {
    const double share = static_cast<double>(rest) * weight(i);
    const std::uint64_t whole = std::min(left, static_cast<std::uint64_t>(share));
    grants[i].limit += whole;
    left -= whole;
    remainders.emplace_back(share - static_cast<double>(whole), i);
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % remainders.size()) {
    ++grants[remainders[i].second].limit;
    --left;
  }
  return grants;
}

void CreditLedger::Report(std::uint64_t router, std::uint64_t queued) {
  Router& known = routers_[router];
  known.queued = queued;
  known.gone = false;
}

void CreditLedger::Forget(std::uint64_t router) {
  const auto it = routers_.find(router);
  if (it == routers_.end()) return;
  if (it->second.in_flight == 0) {
    routers_.erase(it);
  } else {
    it->second = {.in_flight = it->second.in_flight, .gone = true};
  }
}

bool CreditLedger::Take(std::uint64_t router) {
  const auto it = routers_.find(router);
  if (it == routers_.end() || it->second.in_flight >= it->second.limit) return false;
  ++it->second.in_flight;
  return true;
}

void CreditLedger::Return(std::uint64_t router) {
  const auto it = routers_.find(router);
  TROUPE_CHECK(it != routers_.end() && it->second.in_flight > 0, "a credit came back that was not taken");
  if (--it->second.in_flight == 0 && it->second.gone) routers_.erase(it);
}

std::vector<Grant> CreditLedger::Regrant(std::uint64_t again) {
  std::vector<RouterDemand> demands;
  for (const auto& [id, router] : routers_)
    if (!router.gone) demands.push_back({id, router.queued + router.in_flight});
  std::vector<Grant> changed;
  for (const Grant& grant : SplitCredits(capacity_, std::move(demands))) {
    Router& router = routers_.at(grant.router);
    if (router.told && router.limit == grant.limit && grant.router != again) continue;
    router.limit = grant.limit;
    router.told = true;
    changed.push_back(grant);
  }
  return changed;
}

std::uint64_t CreditLedger::limit(std::uint64_t router) const {
  const auto it = routers_.find(router);
  return it == routers_.end() ? 0 : it->second.limit;
}

std::uint64_t CreditLedger::in_flight(std::uint64_t router) const {
  const auto it = routers_.find(router);
  return it == routers_.end() ? 0 : it->second.in_flight;
}

}  // namespace troupe::node
