// FOREST WALK: from rows of features to the leaves that they reach, and to the weights of these, put together.
//
// A walk has no branch that depends on data: each step adds the outcome of its test to the place of the first
// child, and a leaf leads to itself. Several walks advance together, of one tree over several rows or of one
// row through several trees, so that the processor need not wait for any of them.
// Weights are added in the order of the trees whatever the batch and the threads are, so the scores of a row
// depend on that row alone.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ops/forest.hpp"

namespace troupe::gpu {

// How the weights of one target come together.
enum class Aggregate : std::uint8_t { kAverage, kSum, kMin, kMax };

template <class T>
class ForestWalker {
 public:
  // Rows that ScoreBlock is made for: their features and scores stay in the first cache.
  static constexpr std::int64_t kBlockRows = 64;
  // Fewer rows are better scored one by one, each by all threads.
  static constexpr std::int64_t kFewRows = 8;

  ForestWalker(const Forest& forest, Aggregate aggregate);

  [[nodiscard]] std::int64_t trees() const { return static_cast<std::int64_t>(roots_.size()); }
  // The work of one row, in elements as ParallelRanges counts them.
  [[nodiscard]] std::int64_t row_cost() const { return row_cost_; }

  // The scores of at most kBlockRows rows, on the calling thread. Rows begin `stride` elements apart, their
  // scores `pitch` elements apart. A target that no weight came to is 0.
  void ScoreBlock(const T* x, std::int64_t rows, std::int64_t stride, T* scores, std::int64_t pitch) const;
  // The scores of one row. The threads of the plan share the trees; `leaves` has a place for each tree.
  void ScoreRow(const T* x, T* scores, std::int32_t* leaves) const;

 private:
  // What the tests of all nodes need: kOrdered is "at most" alone, kMissing also knows where a NaN goes, kAny
  // is every test.
  enum class Kind : std::uint8_t { kOrdered, kMissing, kAny };
  struct Node {
    T threshold;  // of a leaf, in a forest of one target: its weights together; kMember: a place in members_
    std::int32_t feature;
    std::int32_t child;
    std::uint32_t bits;  // see forest_walk.cpp
  };
  struct Weight {
    std::int32_t target;
    T weight;
  };

  void AddNode(const Forest& forest, std::size_t place);
  void Start(T* scores, std::int64_t rows, std::int64_t pitch) const;
  void Finish(T* scores, std::int64_t rows, std::int64_t pitch) const;
  [[nodiscard]] T Join(T score, T weight) const;
  void Collect(std::int32_t leaf, T* scores) const;
  [[nodiscard]] bool IsMember(const Node& node, T value) const;
  template <Kind kKind>
  [[nodiscard]] std::int32_t Next(const Node* nodes, std::int32_t at, const T* x) const;
  template <Kind kKind>
  [[nodiscard]] std::int32_t WalkRow(std::int32_t root, const T* x) const;
  template <Kind kKind>
  void WalkRows(std::size_t tree, const T* x, std::int64_t rows, std::int64_t stride,
                std::int32_t* leaves) const;
  template <Kind kKind>
  void WalkTrees(std::int64_t first, std::int64_t last, const T* x, std::int32_t* leaves) const;
  template <Kind kKind>
  void WalkBlock(const T* x, std::int64_t rows, std::int64_t stride, T* scores, std::int64_t pitch) const;

  std::vector<Node> nodes_;
  std::vector<std::int32_t> roots_;
  std::vector<std::int32_t> depths_;
  std::vector<std::int32_t> sure_steps_;      // of each tree: so many are made before the walks are looked at
  std::vector<std::uint32_t> first_weights_;  // by node, two for each; empty with one target
  std::vector<Weight> weights_;
  std::vector<std::vector<double>> members_;
  std::int64_t targets_;
  std::int64_t row_cost_ = 0;
  Aggregate aggregate_;
  Kind kind_ = Kind::kOrdered;
};

}  // namespace troupe::gpu
