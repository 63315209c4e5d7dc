// Trees as TreeEnsemble of ai.onnx.ml 5 writes them: nodes and leaves in lists of their own.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/forest.hpp"

namespace troupe::gpu {
namespace {

class Reader5 {
 public:
  explicit Reader5(const StepContext& ctx) : ctx_(ctx) {}

  absl::StatusOr<RawForest> Run() {
    features_ = IntList(ctx_, "nodes_featureids");
    if (features_.empty()) return ctx_.Error("has no nodes: attribute 'nodes_featureids' is empty or absent");
    TROUPE_RETURN_IF_ERROR(ReadNodes());
    TROUPE_RETURN_IF_ERROR(ReadLeaves());
    TROUPE_RETURN_IF_ERROR(Link(0, "nodes_truenodeids", "nodes_trueleafs"));
    TROUPE_RETURN_IF_ERROR(Link(1, "nodes_falsenodeids", "nodes_falseleafs"));
    TROUPE_RETURN_IF_ERROR(ReadMembers());
    const auto roots = IntList(ctx_, "tree_roots");
    if (roots.empty()) return ctx_.Error("has no trees: attribute 'tree_roots' is empty or absent");
    for (std::int64_t root : roots)
      if (root < 0 || root >= nodes())
        return ctx_.Error(absl::StrCat("a tree begins at node ", root, " of ", nodes()));
    forest_.roots.assign(roots.begin(), roots.end());
    return std::move(forest_);
  }

 private:
  [[nodiscard]] std::int64_t nodes() const { return static_cast<std::int64_t>(features_.size()); }

  absl::Status ReadNodes() {
    const std::size_t count = features_.size();
    const auto missing = IntList(ctx_, "nodes_missing_value_tracks_true");
    TROUPE_ASSIGN_OR_RETURN(const std::vector<double> modes, TensorList(ctx_, "nodes_modes"));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<double> splits, TensorList(ctx_, "nodes_splits"));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<double> hits, TensorList(ctx_, "nodes_hitrates"));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_modes", modes.size(), count));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_splits", splits.size(), count));
    if (!missing.empty())
      TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_missing_value_tracks_true", missing.size(), count));
    if (!hits.empty()) TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "nodes_hitrates", hits.size(), count));
    forest_.nodes.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (!(modes[i] >= 0 && modes[i] <= static_cast<double>(NodeTest::kMember)))
        return ctx_.Error(absl::StrCat("node ", i, " has the unknown mode ", modes[i]));
      RawForest::Node& node = forest_.nodes[i];
      node.test = static_cast<NodeTest>(static_cast<int>(modes[i]));
      node.feature = features_[i];
      node.threshold = splits[i];
      node.missing_true = !missing.empty() && missing[i] != 0;
    }
    return absl::OkStatus();
  }

  // Leaves stand behind the nodes in the raw list.
  absl::Status ReadLeaves() {
    const auto targets = IntList(ctx_, "leaf_targetids");
    TROUPE_ASSIGN_OR_RETURN(const std::vector<double> weights, TensorList(ctx_, "leaf_weights"));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, "leaf_weights", weights.size(), targets.size()));
    if (targets.size() > std::size_t{1} << 30) return ctx_.Error("has more than 2^30 leaves");
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] < 0 || targets[i] > std::int64_t{1} << 30)
        return ctx_.Error(absl::StrCat("leaf ", i, " is for target ", targets[i], ", which cannot be"));
      RawForest::Node leaf;
      leaf.weights[0] = static_cast<std::uint32_t>(i);
      leaf.weights[1] = static_cast<std::uint32_t>(i + 1);
      forest_.nodes.push_back(leaf);
      forest_.weights.push_back({static_cast<std::int32_t>(targets[i]), weights[i]});
    }
    return absl::OkStatus();
  }

  absl::Status Link(std::size_t side, const char* ids, const char* leaves) {
    const auto children = IntList(ctx_, ids);
    const auto leaf = IntList(ctx_, leaves);
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, ids, children.size(), features_.size()));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx_, leaves, leaf.size(), features_.size()));
    const auto all_leaves = static_cast<std::int64_t>(forest_.weights.size());
    for (std::size_t i = 0; i < children.size(); ++i) {
      const std::int64_t most = leaf[i] != 0 ? all_leaves : nodes();
      if (children[i] < 0 || children[i] >= most)
        return ctx_.Error(absl::StrCat("node ", i, " leads to ", leaf[i] != 0 ? "leaf " : "node ",
                                       children[i], " of ", most));
      forest_.nodes[i].children[side] = children[i] + (leaf[i] != 0 ? nodes() : 0);
    }
    return absl::OkStatus();
  }

  // The members of one node after the other, each list ended by a NaN.
  absl::Status ReadMembers() {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<double> values, TensorList(ctx_, "membership_values"));
    std::size_t at = 0;
    for (std::size_t i = 0; i < features_.size(); ++i) {
      RawForest::Node& node = forest_.nodes[i];
      if (node.test != NodeTest::kMember) continue;
      std::vector<double> members;
      while (at < values.size() && !std::isnan(values[at])) members.push_back(values[at++]);
      if (at++ >= values.size())
        return ctx_.Error(absl::StrCat("attribute 'membership_values' ends before the members of node ", i));
      std::ranges::sort(members);
      node.threshold = static_cast<double>(forest_.members.size());
      forest_.members.push_back(std::move(members));
    }
    if (at >= values.size()) return absl::OkStatus();
    return ctx_.Error(absl::StrCat("attribute 'membership_values' has ", values.size() - at,
                                   " values behind those of the last node"));
  }

  const StepContext& ctx_;
  std::span<const std::int64_t> features_;
  RawForest forest_;
};

}  // namespace

absl::StatusOr<RawForest> ReadForest5(const StepContext& ctx) {
  return Reader5(ctx).Run();
}

}  // namespace troupe::gpu
