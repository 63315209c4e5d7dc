// LAYERS: a graph without circles in columns, so that every arrow points to the right, and crosses few others. Pure.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace troupe::shell {

struct Layers {
  // The nodes of each column, from top to bottom. A node stands one column behind the last of those that lead to it.
  std::vector<std::vector<std::size_t>> columns{};
};
// `arrows`: from, to; both below `nodes`. Arrows of a circle, if there is one, do not count.
[[nodiscard]] Layers LayOut(std::size_t nodes,
                            const std::vector<std::pair<std::size_t, std::size_t>>& arrows);

}  // namespace troupe::shell
