#include "gpu/ops/forest.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

// Places in a forest are 32-bit numbers; a leaf that several nodes share is copied for each.
constexpr std::size_t kMostNodes = std::size_t{1} << 30;

class Arranger {
 public:
  Arranger(const StepContext& ctx, RawForest& raw) : ctx_(ctx), raw_(raw), seen_(raw.nodes.size()) {}

  absl::StatusOr<Forest> Run() {
    if (raw_.nodes.size() > kMostNodes)
      return ctx_.Error(absl::StrCat("has ", raw_.nodes.size(), " nodes, at most 2^30 are supported"));
    forest_.nodes.reserve(raw_.nodes.size());
    for (std::int64_t root : raw_.roots) TROUPE_RETURN_IF_ERROR(AddTree(root));
    for (std::size_t i = 0; i < seen_.size(); ++i)
      if (!seen_[i])
        return ctx_.Error(absl::StrCat("node ", i,
                                       " of the list is in no tree: no path from a root leads "
                                       "to it, or it is part of a cycle"));
    forest_.weights = std::move(raw_.weights);
    forest_.members = std::move(raw_.members);
    forest_.targets = raw_.targets;
    return std::move(forest_);
  }

 private:
  // Level by level, so that depth costs no stack.
  absl::Status AddTree(std::int64_t root) {
    const auto first = static_cast<std::int32_t>(forest_.nodes.size());
    forest_.roots.push_back(first);
    places_.assign(1, root);
    forest_.nodes.emplace_back();
    std::int32_t depth = 0;
    std::size_t level_end = 1;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (i == level_end) {
        ++depth;
        level_end = places_.size();
      }
      TROUPE_RETURN_IF_ERROR(AddNode(places_[i], first + static_cast<std::int32_t>(i), first));
    }
    forest_.depths.push_back(depth);
    return absl::OkStatus();
  }

  absl::Status AddNode(std::int64_t from, std::int32_t to, std::int32_t first) {
    const RawForest::Node& raw = raw_.nodes[static_cast<std::size_t>(from)];
    const bool leaf = raw.test == NodeTest::kLeaf;
    if (seen_[static_cast<std::size_t>(from)] && !leaf)
      return ctx_.Error(absl::StrCat("node ", from,
                                     " of the list is reached twice: trees must not have "
                                     "cycles, and no two nodes one child"));
    seen_[static_cast<std::size_t>(from)] = true;
    Forest::Node node;
    node.test = raw.test;
    node.missing_true = raw.missing_true;
    node.threshold = raw.threshold;
    node.weights[0] = raw.weights[0];
    node.weights[1] = raw.weights[1];
    node.child = to;
    if (!leaf) {
      if (raw.feature < 0 || raw.feature >= std::numeric_limits<std::int32_t>::max())
        return ctx_.Error(absl::StrCat("node ", from, " tests feature ", raw.feature, ", which cannot be"));
      if (places_.size() + 2 > kMostNodes - static_cast<std::size_t>(first))
        return ctx_.Error("has more than 2^30 nodes");
      node.feature = static_cast<std::int32_t>(raw.feature);
      node.child = first + static_cast<std::int32_t>(places_.size());
      forest_.features = std::max(forest_.features, raw.feature + 1);
      places_.push_back(raw.children[0]);
      places_.push_back(raw.children[1]);
      forest_.nodes.resize(static_cast<std::size_t>(first) + places_.size());
    }
    forest_.nodes[static_cast<std::size_t>(to)] = node;
    return absl::OkStatus();
  }

  const StepContext& ctx_;
  RawForest& raw_;
  std::vector<bool> seen_;
  std::vector<std::int64_t> places_;  // of the tree's nodes in the raw list, in their new order
  Forest forest_;
};

}  // namespace

absl::StatusOr<Forest> ArrangeForest(const StepContext& ctx, RawForest raw) {
  return Arranger(ctx, raw).Run();
}

}  // namespace troupe::gpu
