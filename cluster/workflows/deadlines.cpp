#include "cluster/workflows/deadlines.hpp"

#include <algorithm>
#include <set>

#include "base/check.hpp"
#include "cluster/workflows/step_ends.hpp"

namespace troupe::cluster {

StepDeadlines::StepDeadlines(const proto::WorkflowSpec& spec)
    : nodes_(static_cast<std::size_t>(spec.steps_size())) {
  for (int i = 0; i < spec.steps_size(); ++i) index_.emplace(spec.steps(i).name(), i);
  std::vector<std::size_t> waits(nodes_.size());  // how many steps each one waits for
  const auto follows = [&](const std::string& before, std::size_t after, std::set<std::size_t>& known) {
    const auto it = index_.find(before);
    if (it == index_.end() || !known.insert(it->second).second) return;
    nodes_[it->second].next.push_back(after);
    ++waits[after];
  };
  std::vector<std::set<std::size_t>> known(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto& step = spec.steps(static_cast<int>(i));
    nodes_[i].timeout = Duration(step.timeout_ns());
    const auto read = [&](const proto::Binding& binding) {
      ForEachValue(binding, [&](const std::string& value) { follows(ParseValue(value).step, i, known[i]); });
    };
    ForEachRead(step, read);
    const auto stand_in = index_.find(step.on_error().step());
    if (stand_in != index_.end()) follows(step.name(), stand_in->second, known[stand_in->second]);
  }
  // What reads a step reads what stands in for it, too.
  for (const auto& step : spec.steps()) {
    const auto stand_in = index_.find(step.on_error().step());
    if (stand_in == index_.end()) continue;
    for (const std::size_t reader : std::vector(nodes_[index_.at(step.name())].next))
      if (reader != stand_in->second) follows(step.on_error().step(), reader, known[reader]);
  }
  std::vector<std::size_t> forward;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (waits[i] == 0) forward.push_back(i);
  for (std::size_t i = 0; i < forward.size(); ++i)
    for (const std::size_t next : nodes_[forward[i]].next)
      if (--waits[next] == 0) forward.push_back(next);
  order_.assign(forward.rbegin(), forward.rend());
  for (const std::size_t i : order_)
    for (const std::size_t next : nodes_[i].next)
      nodes_[i].steps = std::max(nodes_[i].steps, 1 + nodes_[next].steps);
}

Time StepDeadlines::Of(const proto::WorkflowStep& step, Time now, Time expiry) const {
  const auto it = index_.find(step.name());
  TROUPE_CHECK(it != index_.end(), "the workflow has no such step");
  if (expiry <= now) return expiry;
  const Duration left = expiry - now;
  const auto even = static_cast<double>(left.count()) / static_cast<double>(nodes_[it->second].steps);
  const auto weight = [&](const Node& node) {
    return node.timeout > Duration::zero() ? static_cast<double>(node.timeout.count()) : even;
  };
  std::vector<double> heaviest(nodes_.size());  // of the chains that begin at each step
  for (const std::size_t i : order_) {
    double behind = 0;
    for (const std::size_t next : nodes_[i].next) behind = std::max(behind, heaviest[next]);
    heaviest[i] = weight(nodes_[i]) + behind;
  }
  const Node& own = nodes_[it->second];
  // A step that nothing waits for is not cut short by rounding.
  Time until = expiry;
  if (heaviest[it->second] > weight(own))
    until = now + Duration(static_cast<Duration::rep>(static_cast<double>(left.count()) * weight(own) /
                                                      heaviest[it->second]));
  return own.timeout > Duration::zero() ? std::min(until, now + own.timeout) : until;
}

}  // namespace troupe::cluster
