#include "gpu/ops/forest_walk.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

// Walks that advance together, and the steps after which they look whether all have arrived.
constexpr int kLanes = 8;
constexpr int kStepsBetweenLooks = 2;
// What a step of a walk costs, in elements of a simple loop.
constexpr std::int64_t kStepCost = 4;

// Bits of a node. The outcomes of kAny stand above: for a feature that is less, equal, greater, and NaN.
constexpr std::uint32_t kInner = 1;
constexpr std::uint32_t kNanIsTrue = 2;
constexpr std::uint32_t kMember = 4;
constexpr int kOutcomes = 8;

// Every test but that of a set, as the outcomes that are true.
constexpr std::uint32_t TrueOutcomes(NodeTest test) {
  constexpr std::uint32_t kLess = 1;
  constexpr std::uint32_t kEqual = 2;
  constexpr std::uint32_t kGreater = 4;
  switch (test) {
    case NodeTest::kLeq:
      return kLess | kEqual;
    case NodeTest::kLt:
      return kLess;
    case NodeTest::kGte:
      return kGreater | kEqual;
    case NodeTest::kGt:
      return kGreater;
    case NodeTest::kEq:
      return kEqual;
    case NodeTest::kNeq:
      return kLess | kGreater;
    default:
      return 0;
  }
}

// The steps to a leaf of the tree, if each test went either way as often.
double ExpectedSteps(const Forest& forest, std::size_t tree) {
  const auto first = static_cast<std::size_t>(forest.roots[tree]);
  const std::size_t last =
      tree + 1 < forest.roots.size() ? static_cast<std::size_t>(forest.roots[tree + 1]) : forest.nodes.size();
  std::vector<double> share(last - first, 0.0);
  share[0] = 1;
  double steps = 0;
  for (std::size_t i = first; i < last; ++i) {
    if (forest.nodes[i].test == NodeTest::kLeaf) continue;
    const auto child = static_cast<std::size_t>(forest.nodes[i].child) - first;
    steps += share[i - first];
    share[child] += share[i - first] / 2;
    share[child + 1] += share[i - first] / 2;
  }
  return steps;
}

bool IsOrdered(NodeTest test) {
  return test == NodeTest::kLeq || test == NodeTest::kLt || test == NodeTest::kLeaf;
}

}  // namespace

template <class T>
ForestWalker<T>::ForestWalker(const Forest& forest, Aggregate aggregate)
    : roots_(forest.roots),
      depths_(forest.depths),
      members_(forest.members),
      targets_(forest.targets),
      aggregate_(aggregate) {
  for (const Forest::Node& node : forest.nodes) {
    if (!IsOrdered(node.test)) kind_ = Kind::kAny;
    if (kind_ == Kind::kOrdered && node.missing_true) kind_ = Kind::kMissing;
  }
  for (const LeafWeight& weight : forest.weights) weights_.push_back({weight.target, T(weight.weight)});
  nodes_.reserve(forest.nodes.size());
  for (std::size_t i = 0; i < forest.nodes.size(); ++i) AddNode(forest, i);
  for (std::size_t tree = 0; tree < roots_.size(); ++tree) {
    const auto steps = static_cast<std::int32_t>(ExpectedSteps(forest, tree));
    sure_steps_.push_back(steps);
    row_cost_ += kStepCost * (steps + 1);
  }
}

template <class T>
void ForestWalker<T>::AddNode(const Forest& forest, std::size_t place) {
  const Forest::Node& from = forest.nodes[place];
  Node node{T(from.threshold), from.feature, from.child, 0};
  if (from.test == NodeTest::kLeaf) {
    node.threshold = aggregate_ == Aggregate::kMin || aggregate_ == Aggregate::kMax
                         ? std::numeric_limits<T>::quiet_NaN()
                         : T(0);
    for (std::uint32_t w = from.weights[0]; w < from.weights[1]; ++w)
      node.threshold = Join(node.threshold, weights_[w].weight);
  } else {
    node.bits = kInner | (from.missing_true ? kNanIsTrue : 0);
    if (from.test == NodeTest::kMember) node.bits |= kMember;
    const std::uint32_t nan = from.missing_true || from.test == NodeTest::kNeq ? 8 : 0;
    node.bits |= (TrueOutcomes(from.test) | nan) << kOutcomes;
    // "Less than" is "at most the number before"; nothing is less than the smallest number.
    if (from.test == NodeTest::kLt && kind_ != Kind::kAny)
      node.threshold = node.threshold == -std::numeric_limits<T>::infinity()
                           ? std::numeric_limits<T>::quiet_NaN()
                           : std::nextafter(node.threshold, -std::numeric_limits<T>::infinity());
  }
  nodes_.push_back(node);
  if (targets_ == 1) return;
  first_weights_.push_back(from.weights[0]);
  first_weights_.push_back(from.weights[1]);
}

template <class T>
T ForestWalker<T>::Join(T score, T weight) const {
  // A NaN stands for no score yet.
  switch (aggregate_) {
    case Aggregate::kMin:
      return weight < score || score != score ? weight : score;
    case Aggregate::kMax:
      return weight > score || score != score ? weight : score;
    default:
      return score + weight;
  }
}

template <class T>
void ForestWalker<T>::Start(T* scores, std::int64_t rows, std::int64_t pitch) const {
  const bool extreme = aggregate_ == Aggregate::kMin || aggregate_ == Aggregate::kMax;
  const T first = extreme ? std::numeric_limits<T>::quiet_NaN() : T(0);
  for (std::int64_t row = 0; row < rows; ++row) std::fill_n(scores + row * pitch, targets_, first);
}

template <class T>
void ForestWalker<T>::Finish(T* scores, std::int64_t rows, std::int64_t pitch) const {
  if (aggregate_ == Aggregate::kSum) return;
  const auto trees = static_cast<T>(roots_.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < targets_; ++i) {
      T& score = scores[row * pitch + i];
      if (aggregate_ == Aggregate::kAverage) {
        score /= trees;
      } else if (score != score) {
        score = 0;
      }
    }
  }
}

template <class T>
void ForestWalker<T>::Collect(std::int32_t leaf, T* scores) const {
  const auto at = static_cast<std::size_t>(leaf);
  if (targets_ == 1) {
    *scores = Join(*scores, nodes_[at].threshold);
    return;
  }
  for (std::uint32_t w = first_weights_[2 * at]; w < first_weights_[2 * at + 1]; ++w)
    scores[weights_[w].target] = Join(scores[weights_[w].target], weights_[w].weight);
}

template <class T>
bool ForestWalker<T>::IsMember(const Node& node, T value) const {
  const std::vector<double>& set = members_[static_cast<std::size_t>(node.threshold)];
  return std::binary_search(set.begin(), set.end(), static_cast<double>(value));
}

template <class T>
template <typename ForestWalker<T>::Kind kKind>
[[gnu::always_inline]] inline std::int32_t ForestWalker<T>::Next(const Node* nodes, std::int32_t at,
                                                                 const T* x) const {
  const Node& node = nodes[at];
  const T value = x[node.feature];
  if constexpr (kKind == Kind::kOrdered) {
    return node.child + static_cast<std::int32_t>(node.bits & (value <= node.threshold ? 0U : 1U));
  } else if constexpr (kKind == Kind::kMissing) {
    const std::uint32_t fails = value <= node.threshold ? 0U : 1U;
    const std::uint32_t nan_holds = (value != value ? node.bits : 0U) >> 1U;
    return node.child + static_cast<std::int32_t>(node.bits & (fails & ~nan_holds) & 1U);
  } else {
    const bool nan = value != value;
    if ((node.bits & kMember) != 0) {
      const bool holds = nan ? (node.bits & kNanIsTrue) != 0 : IsMember(node, value);
      return node.child + (holds ? 0 : 1);
    }
    const int outcome = nan ? 3 : int(value >= node.threshold) + int(value > node.threshold);
    return node.child + static_cast<std::int32_t>(~(node.bits >> (kOutcomes + outcome)) & node.bits & 1U);
  }
}

// One tree, over rows that advance together.
template <class T>
template <typename ForestWalker<T>::Kind kKind>
void ForestWalker<T>::WalkRows(std::size_t tree, const T* x, std::int64_t rows, std::int64_t stride,
                               std::int32_t* leaves) const {
  const Node* const nodes = nodes_.data();
  const std::int32_t root = roots_[tree];
  const std::int32_t depth = depths_[tree];
  const std::int32_t sure = sure_steps_[tree];
  if (rows < kLanes) {
    for (std::int64_t row = 0; row < rows; ++row) leaves[row] = WalkRow<kKind>(root, x + row * stride);
    return;
  }
  for (std::int64_t begin = 0; begin < rows; begin += kLanes) {
    const std::int64_t row = std::min(begin, rows - kLanes);  // the last ones may be walked twice
    std::int32_t at[kLanes];
    const T* features[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      at[lane] = root;
      features[lane] = x + (row + lane) * stride;
    }
    for (std::int32_t step = 0; step < depth; ++step) {
#pragma GCC unroll 8
      for (int lane = 0; lane < kLanes; ++lane) at[lane] = Next<kKind>(nodes, at[lane], features[lane]);
      if (step < sure || step % kStepsBetweenLooks != 0) continue;
      std::uint32_t inner = 0;
      for (std::int32_t place : at) inner |= nodes[place].bits;
      if ((inner & kInner) == 0) break;
    }
    std::copy_n(at, kLanes, leaves + row);
  }
}

template <class T>
template <typename ForestWalker<T>::Kind kKind>
std::int32_t ForestWalker<T>::WalkRow(std::int32_t root, const T* x) const {
  const Node* const nodes = nodes_.data();
  std::int32_t at = root;
  while ((nodes[at].bits & kInner) != 0) at = Next<kKind>(nodes, at, x);
  return at;
}

// One row, through trees that advance together.
template <class T>
template <typename ForestWalker<T>::Kind kKind>
void ForestWalker<T>::WalkTrees(std::int64_t first, std::int64_t last, const T* x,
                                std::int32_t* leaves) const {
  const Node* const nodes = nodes_.data();
  std::int64_t tree = first;
  for (; tree + kLanes <= last; tree += kLanes) {
    std::int32_t at[kLanes];
    std::copy_n(roots_.begin() + tree, kLanes, at);
    for (std::uint32_t inner = kInner; inner != 0;) {
      for (int step = 0; step < kStepsBetweenLooks; ++step) {
#pragma GCC unroll 8
        for (int lane = 0; lane < kLanes; ++lane) at[lane] = Next<kKind>(nodes, at[lane], x);
      }
      inner = 0;
      for (std::int32_t place : at) inner |= nodes[place].bits & kInner;
    }
    std::copy_n(at, kLanes, leaves + tree);
  }
  for (; tree < last; ++tree) leaves[tree] = WalkRow<kKind>(roots_[static_cast<std::size_t>(tree)], x);
}

template <class T>
template <typename ForestWalker<T>::Kind kKind>
void ForestWalker<T>::WalkBlock(const T* x, std::int64_t rows, std::int64_t stride, T* scores,
                                std::int64_t pitch) const {
  const bool sums = aggregate_ == Aggregate::kSum || aggregate_ == Aggregate::kAverage;
  std::array<std::int32_t, kBlockRows> leaves;
  for (std::size_t tree = 0; tree < roots_.size(); ++tree) {
    WalkRows<kKind>(tree, x, rows, stride, leaves.data());
    if (targets_ == 1 && sums) {
      for (std::int64_t row = 0; row < rows; ++row)
        scores[row * pitch] +=
            nodes_[static_cast<std::size_t>(leaves[static_cast<std::size_t>(row)])].threshold;
    } else {
      for (std::int64_t row = 0; row < rows; ++row)
        Collect(leaves[static_cast<std::size_t>(row)], scores + row * pitch);
    }
  }
}

template <class T>
void ForestWalker<T>::ScoreBlock(const T* x, std::int64_t rows, std::int64_t stride, T* scores,
                                 std::int64_t pitch) const {
  Start(scores, rows, pitch);
  switch (kind_) {
    case Kind::kOrdered:
      WalkBlock<Kind::kOrdered>(x, rows, stride, scores, pitch);
      break;
    case Kind::kMissing:
      WalkBlock<Kind::kMissing>(x, rows, stride, scores, pitch);
      break;
    case Kind::kAny:
      WalkBlock<Kind::kAny>(x, rows, stride, scores, pitch);
      break;
  }
  Finish(scores, rows, pitch);
}

template <class T>
void ForestWalker<T>::ScoreRow(const T* x, T* scores, std::int32_t* leaves) const {
  Start(scores, 1, targets_);
  ParallelRanges(trees(), row_cost_ / trees(), [&](std::int64_t first, std::int64_t last) {
    switch (kind_) {
      case Kind::kOrdered:
        return WalkTrees<Kind::kOrdered>(first, last, x, leaves);
      case Kind::kMissing:
        return WalkTrees<Kind::kMissing>(first, last, x, leaves);
      case Kind::kAny:
        return WalkTrees<Kind::kAny>(first, last, x, leaves);
    }
  });
  for (std::int64_t tree = 0; tree < trees(); ++tree) Collect(leaves[tree], scores);
  Finish(scores, 1, targets_);
}

template class ForestWalker<float>;
template class ForestWalker<double>;

}  // namespace troupe::gpu
