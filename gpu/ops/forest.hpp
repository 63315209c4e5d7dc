// FOREST: the trees of an ensemble as one flat list of nodes, judged and ready to walk.
//
//   attributes (hostile) -> RawForest -> Forest -> WalkForest (forest_walk.hpp)
//
// The children of a node stand side by side: the one for a true test first. Nodes of a tree stand in the
// order of their depth, so the first levels of a tree share cache lines. A leaf is its own child.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// Numbered as TreeEnsemble of ai.onnx.ml 5 does.
enum class NodeTest : std::uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember, kLeaf };

struct LeafWeight {
  std::int32_t target = 0;
  double weight = 0;
};

// What the attributes say, with places in `nodes` instead of numbers of nodes. Every list has as many entries
// as the file gave.
struct RawForest {
  struct Node {
    NodeTest test = NodeTest::kLeaf;
    bool missing_true = false;  // a NaN goes the way of a true test
    std::int64_t feature = 0;
    double threshold = 0;               // kMember: a place in `members`
    std::int64_t children[2] = {0, 0};  // for a true and for a false test
    std::uint32_t weights[2] = {0, 0};  // of a leaf: first place in `weights` and behind the last
  };
  std::vector<Node> nodes;
  std::vector<std::int64_t> roots;
  std::vector<LeafWeight> weights;
  std::vector<std::vector<double>> members;  // each sorted
  std::int64_t targets = 0;
};

struct Forest {
  struct Node {
    double threshold = 0;
    std::int32_t feature = 0;
    std::int32_t child = 0;
    NodeTest test = NodeTest::kLeaf;
    bool missing_true = false;
    std::uint32_t weights[2] = {0, 0};
  };
  std::vector<Node> nodes;
  std::vector<std::int32_t> roots;
  std::vector<std::int32_t> depths;  // of each tree: the tests on its longest path
  std::vector<LeafWeight> weights;
  std::vector<std::vector<double>> members;
  std::int64_t targets = 0;
  std::int64_t features = 0;  // one more than the largest that a test reads
};

// TreeEnsembleRegressor and TreeEnsembleClassifier (ai.onnx.ml 1 and 3), with the prefix of the attributes
// that tell leaves' weights: "target" or "class".
[[nodiscard]] absl::StatusOr<RawForest> ReadForest(const StepContext& ctx, const char* weights);
// TreeEnsemble (ai.onnx.ml 5).
[[nodiscard]] absl::StatusOr<RawForest> ReadForest5(const StepContext& ctx);

// Refuses trees that are none: a node that two nodes lead to, or none, and cycles.
[[nodiscard]] absl::StatusOr<Forest> ArrangeForest(const StepContext& ctx, RawForest raw);

}  // namespace troupe::gpu
