// Trees as ai.onnx.ml 1 and 3 write them: one entry per node in each of eight lists, and weights of leaves by
// the numbers of tree and node.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/forest.hpp"

namespace troupe::gpu {
namespace {

constexpr std::array<std::pair<std::string_view, NodeTest>, 7> kModes = {{{"BRANCH_LEQ", NodeTest::kLeq},
                                                                          {"BRANCH_LT", NodeTest::kLt},
                                                                          {"BRANCH_GTE", NodeTest::kGte},
                                                                          {"BRANCH_GT", NodeTest::kGt},
                                                                          {"BRANCH_EQ", NodeTest::kEq},
                                                                          {"BRANCH_NEQ", NodeTest::kNeq},
                                                                          {"LEAF", NodeTest::kLeaf}}};

using NodeKey = std::pair<std::int64_t, std::int64_t>;  // the numbers of tree and node

class Reader {
 public:
  Reader(const StepContext& ctx, std::string prefix) : ctx_(ctx), prefix_(std::move(prefix)) {}

  absl::StatusOr<RawForest> Run() {
    trees_ = IntList(ctx_, "nodes_treeids");
    numbers_ = IntList(ctx_, "nodes_nodeids");
    if (trees_.empty()) return ctx_.Error("has no nodes: attribute 'nodes_treeids' is empty or absent");
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_nodeids", numbers_.size(), trees_.size()));
    TROUPE_RETURN_IF_ERROR(ReadNodes());
    TROUPE_RETURN_IF_ERROR(Index());
    TROUPE_RETURN_IF_ERROR(LinkChildren());
    TROUPE_RETURN_IF_ERROR(FindRoots());
    TROUPE_RETURN_IF_ERROR(ReadWeights());
    return std::move(forest_);
  }

 private:
  absl::Status ReadNodes() {
    const std::size_t count = trees_.size();
    const auto features = IntList(ctx_, "nodes_featureids");
    const auto modes = TextList(ctx_, "nodes_modes");
    const auto missing = IntList(ctx_, "nodes_missing_value_tracks_true");
    TROUPE_ASSIGN_OR_RETURN(const std::vector<double> values, NumberList(ctx_, "nodes_values"));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<double> hits, NumberList(ctx_, "nodes_hitrates"));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_featureids", features.size(), count));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_modes", modes.size(), count));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_values", values.size(), count));
    if (!missing.empty())
      TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_missing_value_tracks_true", missing.size(), count));
    if (!hits.empty()) TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_hitrates", hits.size(), count));
    forest_.nodes.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto* mode = std::ranges::find(kModes, std::string_view(*modes[i]),
                                           &std::pair<std::string_view, NodeTest>::first);
      if (mode == kModes.end())
        return ctx_.Error(absl::StrCat("node ", i, " has the unknown mode '", *modes[i], "'"));
      RawForest::Node& node = forest_.nodes[i];
      node.test = mode->second;
      node.feature = features[i];
      node.threshold = values[i];
      node.missing_true = !missing.empty() && missing[i] != 0;
    }
    return absl::OkStatus();
  }

  absl::Status Index() {
    places_.reserve(trees_.size());
    for (std::size_t i = 0; i < trees_.size(); ++i)
      places_.push_back({{trees_[i], numbers_[i]}, static_cast<std::int64_t>(i)});
    if (!std::ranges::is_sorted(places_)) std::ranges::sort(places_);
    const auto twice = std::ranges::adjacent_find(places_, {}, &Place::first);
    if (twice == places_.end()) return absl::OkStatus();
    return ctx_.Error(
        absl::StrCat("node ", twice->first.second, " of tree ", twice->first.first, " is given twice"));
  }

  // The place of a node in the lists, or -1. Exporters number the nodes of a tree one by one, so the distance
  // from a node that is known is tried first.
  [[nodiscard]] std::int64_t Find(NodeKey key, std::int64_t known) const {
    const std::int64_t count = static_cast<std::int64_t>(trees_.size());
    const std::int64_t own = numbers_[static_cast<std::size_t>(known)];
    // The file says the numbers: the differences below do not overflow where neither is below 0.
    if (key.second >= 0 && own >= 0 && key.second >= own - known && key.second - own < count - known) {
      const auto guess = static_cast<std::size_t>(known + (key.second - own));
      if (trees_[guess] == key.first && numbers_[guess] == key.second)
        return static_cast<std::int64_t>(guess);
    }
    const auto at = std::ranges::lower_bound(places_, key, {}, &Place::first);
    return at == places_.end() || at->first != key ? -1 : at->second;
  }

  absl::Status LinkChildren() {
    constexpr const char* kLists[] = {"nodes_truenodeids", "nodes_falsenodeids"};
    for (std::size_t side = 0; side < 2; ++side) {
      const auto children = IntList(ctx_, kLists[side]);
      TROUPE_RETURN_IF_ERROR(WantLength(ctx_, kLists[side], children.size(), trees_.size()));
      for (std::size_t i = 0; i < trees_.size(); ++i) {
        if (forest_.nodes[i].test == NodeTest::kLeaf) continue;
        const std::int64_t child = Find({trees_[i], children[i]}, static_cast<std::int64_t>(i));
        if (child < 0)
          return ctx_.Error(absl::StrCat("node ", numbers_[i], " of tree ", trees_[i], " leads to node ",
                                         children[i], ", which its tree does not have"));
        forest_.nodes[i].children[side] = child;
      }
    }
    return absl::OkStatus();
  }

  // The root of a tree is its first node that no other leads to. Trees stand in the order of their first
  // nodes, and so their weights are added.
  absl::Status FindRoots() {
    std::vector<bool> child(trees_.size());
    for (const RawForest::Node& node : forest_.nodes) {
      if (node.test == NodeTest::kLeaf) continue;
      for (std::int64_t place : node.children) child[static_cast<std::size_t>(place)] = true;
    }
    std::size_t trees = 0;
    for (std::size_t i = 0; i < places_.size(); ++i)
      trees += i == 0 || places_[i].first.first != places_[i - 1].first.first ? 1 : 0;
    std::vector<std::int64_t> rooted;
    for (std::size_t i = 0; i < trees_.size(); ++i) {
      if (child[i]) continue;
      forest_.roots.push_back(static_cast<std::int64_t>(i));
      rooted.push_back(trees_[i]);
    }
    std::ranges::sort(rooted);
    if (const auto twice = std::ranges::adjacent_find(rooted); twice != rooted.end())
      return ctx_.Error(absl::StrCat("tree ", *twice, " has several nodes that no other node leads to"));
    if (rooted.size() == trees) return absl::OkStatus();
    return ctx_.Error(absl::StrCat("of ", trees, " trees only ", rooted.size(),
                                   " have a root: the nodes of the others lead in a cycle"));
  }

  absl::Status ReadWeights() {
    const std::string names[] = {absl::StrCat(prefix_, "_treeids"), absl::StrCat(prefix_, "_nodeids"),
                                 absl::StrCat(prefix_, "_ids"), absl::StrCat(prefix_, "_weights")};
    const auto trees = IntList(ctx_, names[0]);
    const auto nodes = IntList(ctx_, names[1]);
    const auto targets = IntList(ctx_, names[2]);
    TROUPE_ASSIGN_OR_RETURN(const std::vector<double> weights, NumberList(ctx_, names[3]));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, names[1], nodes.size(), trees.size()));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, names[2], targets.size(), trees.size()));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, names[3], weights.size(), trees.size()));
    if (trees.size() > std::size_t{1} << 31) return ctx_.Error("has more than 2^31 weights of leaves");
    std::vector<std::pair<std::int64_t, std::size_t>> order;  // by leaf, then as given
    order.reserve(trees.size());
    forest_.weights.reserve(trees.size());
    std::int64_t last = 0;
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const std::int64_t leaf = Find({trees[i], nodes[i]}, last);
      if (leaf < 0 || forest_.nodes[static_cast<std::size_t>(leaf)].test != NodeTest::kLeaf)
        return ctx_.Error(absl::StrCat("weight ", i, " is of node ", nodes[i], " of tree ", trees[i],
                                       leaf < 0 ? ", which is not there" : ", which is not a leaf"));
      order.emplace_back(leaf, i);
      last = leaf;
    }
    if (!std::ranges::is_sorted(order)) std::ranges::sort(order);
    for (const auto& [leaf, i] : order) {
      RawForest::Node& node = forest_.nodes[static_cast<std::size_t>(leaf)];
      const auto place = static_cast<std::uint32_t>(forest_.weights.size());
      if (node.weights[1] == 0) node.weights[0] = place;
      node.weights[1] = place + 1;
      if (targets[i] < 0 || targets[i] > std::int64_t{1} << 30)
        return ctx_.Error(absl::StrCat("weight ", i, " is for target ", targets[i], ", which cannot be"));
      forest_.weights.push_back({static_cast<std::int32_t>(targets[i]), weights[i]});
    }
    return absl::OkStatus();
  }

  using Place = std::pair<NodeKey, std::int64_t>;
  const StepContext& ctx_;
  std::string prefix_;
  std::span<const std::int64_t> trees_;
  std::span<const std::int64_t> numbers_;
  std::vector<Place> places_;  // sorted by tree and node
  RawForest forest_;
};

}  // namespace

absl::StatusOr<RawForest> ReadForest(const StepContext& ctx, const char* weights) {
  return Reader(ctx, weights).Run();
}

}  // namespace troupe::gpu
