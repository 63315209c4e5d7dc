#include "cluster/requests/node_runs.hpp"

#include <algorithm>

namespace troupe::cluster {

void NodeRuns::Observe(const std::string& model, const std::string& node, Duration run) {
  ByNode& runs = runs_[model];
  runs[node].Observe(run);
  if (runs.size() < 2) return;
  const auto shorter = [](const auto& a, const auto& b) { return a.second.Or({}) < b.second.Or({}); };
  const double fastest = ToSeconds(std::ranges::min_element(runs, shorter)->second.Or({}));
  if (fastest <= 0) return;
  for (const auto& [name, estimate] : runs) {
    const double times = ToSeconds(estimate.Or({})) / fastest;
    const auto [known, is_new] = slowness_.try_emplace(name, times);
    if (!is_new) known->second += RunningEstimate::kWeight * (times - known->second);
  }
}

double NodeRuns::SlownessOf(const std::string& node) const {
  const auto known = slowness_.find(node);
  return known == slowness_.end() ? 1 : known->second;
}

Duration NodeRuns::RunAt(const std::string& model, const std::string& node) const {
  const auto runs = runs_.find(model);
  if (runs == runs_.end()) return Duration();
  if (const auto own = runs->second.find(node); own != runs->second.end()) return own->second.Or({});
  Duration shortest = Duration::max();  // as if it ran where runs are the shortest
  for (const auto& [name, run] : runs->second)
    shortest = std::min(shortest, FromSeconds(ToSeconds(run.Or({})) / SlownessOf(name)));
  return FromSeconds(ToSeconds(shortest) * SlownessOf(node));
}

void NodeRuns::Keep(const std::string& model, const std::set<std::string>* holders) {
  const auto runs = runs_.find(model);
  if (runs == runs_.end()) return;
  std::erase_if(runs->second,
                [&](const auto& run) { return holders == nullptr || !holders->contains(run.first); });
  if (runs->second.empty()) runs_.erase(runs);
}

void NodeRuns::Forget(const std::string& node) {
  slowness_.erase(node);
  for (auto& [model, runs] : runs_) runs.erase(node);
  std::erase_if(runs_, [](const auto& runs) { return runs.second.empty(); });
}

}  // namespace troupe::cluster
