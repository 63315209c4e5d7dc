#include "shell/graphs/layers.hpp"

#include <algorithm>

namespace troupe::shell {

namespace {

using Arrows = std::vector<std::pair<std::size_t, std::size_t>>;

// The column of each node: the longest way to it.
std::vector<std::size_t> ColumnsOf(std::size_t nodes, const Arrows& arrows) {
  std::vector<std::vector<std::size_t>> next(nodes);
  std::vector<std::size_t> waits(nodes);
  for (const auto& [from, to] : arrows) {
    next[from].push_back(to);
    ++waits[to];
  }
  std::vector<std::size_t> column(nodes);
  std::vector<std::size_t> ready;
  for (std::size_t node = 0; node < nodes; ++node)
    if (waits[node] == 0) ready.push_back(node);
  for (std::size_t i = 0; i < ready.size(); ++i) {
    for (const std::size_t to : next[ready[i]]) {
      column[to] = std::max(column[to], column[ready[i]] + 1);
      if (--waits[to] == 0) ready.push_back(to);
    }
  }
  return column;
}

// Puts each node at the mean place of its neighbours on one side; nodes without any keep their places' order.
void Order(std::vector<std::size_t>& column, const std::vector<std::vector<std::size_t>>& neighbours,
           const std::vector<double>& place) {
  std::vector<std::pair<double, std::size_t>> means;
  for (const std::size_t node : column) {
    double sum = 0;
    for (const std::size_t other : neighbours[node]) sum += place[other];
    const auto count = static_cast<double>(neighbours[node].size());
    means.emplace_back(count > 0 ? sum / count : place[node], node);
  }
  std::stable_sort(means.begin(), means.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::transform(means.begin(), means.end(), column.begin(), [](const auto& mean) { return mean.second; });
}

}  // namespace

Layers LayOut(std::size_t nodes, const Arrows& arrows) {
  const auto column = ColumnsOf(nodes, arrows);
  Layers layers;
  std::vector<double> place(nodes);
  for (std::size_t node = 0; node < nodes; ++node) {
    if (layers.columns.size() <= column[node]) layers.columns.resize(column[node] + 1);
    place[node] = static_cast<double>(layers.columns[column[node]].size());
    layers.columns[column[node]].push_back(node);
  }
  std::vector<std::vector<std::size_t>> before(nodes), after(nodes);
  for (const auto& [from, to] : arrows) {
    before[to].push_back(from);
    after[from].push_back(to);
  }
  const auto settle = [&](std::vector<std::size_t>& nodes_of, const auto& neighbours) {
    Order(nodes_of, neighbours, place);
    for (std::size_t i = 0; i < nodes_of.size(); ++i) place[nodes_of[i]] = static_cast<double>(i);
  };
  // Three times to the right and back: more changes little.
  for (int sweep = 0; sweep < 3; ++sweep) {
    for (auto& nodes_of : layers.columns) settle(nodes_of, before);
    for (auto it = layers.columns.rbegin(); it != layers.columns.rend(); ++it) settle(*it, after);
  }
  return layers;
}

}  // namespace troupe::shell
