// Random ensembles of trees against a walk that follows the attributes node by node.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "base/random.hpp"
#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

constexpr const char* kRegressor = "ai.onnx.ml.TreeEnsembleRegressor";
constexpr std::int64_t kFeatures = 5;

// The attributes of TreeEnsembleRegressor as lists, nodes of a tree in a random order.
struct Trees {
  std::vector<std::int64_t> trees, nodes, features, yes, no, missing;
  std::vector<std::string> modes;
  std::vector<float> values;
  std::vector<std::int64_t> weight_trees, weight_nodes, weight_targets;
  std::vector<float> weights;

  [[nodiscard]] proto::Step Step(std::int64_t targets) const {
    proto::Step step = MakeStep(kRegressor);
    SetInts(step, "nodes_treeids", trees);
    SetInts(step, "nodes_nodeids", nodes);
    SetInts(step, "nodes_featureids", features);
    SetInts(step, "nodes_truenodeids", yes);
    SetInts(step, "nodes_falsenodeids", no);
    SetInts(step, "nodes_missing_value_tracks_true", missing);
    SetTexts(step, "nodes_modes", modes);
    SetFloats(step, "nodes_values", values);
    SetInts(step, "target_treeids", weight_trees);
    SetInts(step, "target_nodeids", weight_nodes);
    SetInts(step, "target_ids", weight_targets);
    SetFloats(step, "target_weights", weights);
    SetInt(step, "n_targets", targets);
    return step;
  }

  [[nodiscard]] std::size_t Find(std::int64_t tree, std::int64_t node) const {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (trees[i] == tree && nodes[i] == node) return i;
    ADD_FAILURE() << "no node " << node << " in tree " << tree;
    return 0;
  }
};

bool Holds(const std::string& mode, float value, float threshold) {
  if (mode == "BRANCH_LEQ") return value <= threshold;
  if (mode == "BRANCH_LT") return value < threshold;
  if (mode == "BRANCH_GTE") return value >= threshold;
  if (mode == "BRANCH_GT") return value > threshold;
  if (mode == "BRANCH_EQ") return value == threshold;
  return value != threshold;
}

class Grower {
 public:
  Grower(Random& random, std::vector<std::string> modes) : random_(random), modes_(std::move(modes)) {}

  Trees Grow(std::int64_t trees, std::int64_t splits, std::int64_t targets) {
    targets_ = targets;
    for (std::int64_t tree = 0; tree < trees; ++tree) {
      const auto own = static_cast<std::int64_t>(random_.Below(static_cast<std::uint64_t>(splits) + 1));
      GrowTree(100 - tree, own);  // numbers of trees need not rise
    }
    return out_;
  }

 private:
  std::int64_t Node(std::int64_t tree, std::int64_t number, const std::string& mode) {
    out_.trees.push_back(tree);
    out_.nodes.push_back(number);
    out_.features.push_back(mode == "LEAF" ? 0 : static_cast<std::int64_t>(random_.Below(kFeatures)));
    out_.modes.push_back(mode);
    out_.values.push_back(static_cast<float>(random_.Below(9)) / 2 - 2);
    out_.yes.push_back(0);
    out_.no.push_back(0);
    out_.missing.push_back(static_cast<std::int64_t>(random_.Below(2)));
    return static_cast<std::int64_t>(out_.nodes.size()) - 1;
  }

  // Splits a random leaf again and again, so that paths are of all lengths.
  void GrowTree(std::int64_t tree, std::int64_t splits) {
    std::int64_t next = 7;
    std::vector<std::int64_t> leaves = {Node(tree, next++, "LEAF")};
    for (std::int64_t split = 0; split < splits; ++split) {
      const std::size_t at = random_.Below(leaves.size());
      const auto place = static_cast<std::size_t>(leaves[at]);
      out_.modes[place] = modes_[random_.Below(modes_.size())];
      out_.features[place] = static_cast<std::int64_t>(random_.Below(kFeatures));
      out_.yes[place] = next;
      out_.no[place] = next + 1;
      leaves[at] = Node(tree, next++, "LEAF");
      leaves.push_back(Node(tree, next++, "LEAF"));
    }
    for (std::int64_t leaf : leaves) {
      for (std::int64_t target = 0; target < targets_; ++target) {
        if (targets_ > 1 && random_.Below(3) == 0) continue;  // not every leaf speaks for every target
        out_.weight_trees.push_back(tree);
        out_.weight_nodes.push_back(out_.nodes[static_cast<std::size_t>(leaf)]);
        out_.weight_targets.push_back(target);
        out_.weights.push_back(static_cast<float>(random_.Below(1000)) / 500 - 1);
      }
    }
  }

  Random& random_;
  std::vector<std::string> modes_;
  std::int64_t targets_ = 1;
  Trees out_;
};

std::vector<float> RandomRows(Random& random, std::int64_t rows, bool holes) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < rows * kFeatures; ++i) {
    const auto drawn = random.Below(12);
    x.push_back(static_cast<float>(drawn) / 2 - 2.5F);
    if (holes && drawn == 0) x.back() = std::numeric_limits<float>::quiet_NaN();
    if (drawn == 1) x.back() = drawn % 2 == 0 ? 0.0F : -0.0F;
    if (drawn == 2) x.back() = std::numeric_limits<float>::infinity();
  }
  return x;
}

std::vector<double> Follow(const Trees& trees, const float* row, std::int64_t targets) {
  std::vector<double> scores(static_cast<std::size_t>(targets), 0.0);
  std::int64_t last = -1;
  for (std::size_t i = 0; i < trees.nodes.size(); ++i) {
    if (trees.trees[i] == last) continue;
    last = trees.trees[i];
    std::size_t at = i;
    while (trees.modes[at] != "LEAF") {
      const float value = row[trees.features[at]];
      const bool holds =
          (std::isnan(value) && trees.missing[at] != 0) || Holds(trees.modes[at], value, trees.values[at]);
      at = trees.Find(last, holds ? trees.yes[at] : trees.no[at]);
    }
    for (std::size_t w = 0; w < trees.weights.size(); ++w)
      if (trees.weight_trees[w] == last && trees.weight_nodes[w] == trees.nodes[at])
        scores[static_cast<std::size_t>(trees.weight_targets[w])] += trees.weights[w];
  }
  return scores;
}

class ForestTest : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(ForestTest, WalksAsTheAttributesSay) {
  Random random(20261126);
  constexpr std::int64_t kRows = 150;
  for (int round = 0; round < 12; ++round) {
    const std::int64_t targets = 1 + round % 3;
    const Trees trees =
        Grower(random, GetParam()).Grow(1 + static_cast<std::int64_t>(random.Below(40)), 30, targets);
    const proto::Step step = trees.Step(targets);
    const std::vector<float> x = RandomRows(random, kRows, true);
    const auto all = RunOp(step, {Floats({kRows, kFeatures}, x)});
    ASSERT_TRUE(all.ok()) << all.status();
    const std::vector<float> scores = (*all)[0].As<float>();
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto expected = Follow(trees, x.data() + row * kFeatures, targets);
      for (std::int64_t i = 0; i < targets; ++i)
        ASSERT_NEAR(scores[static_cast<std::size_t>(row * targets + i)],
                    expected[static_cast<std::size_t>(i)], 1e-4)
            << "row " << row << " round " << round;
    }
    // A row's scores do not depend on the rows beside it.
    for (std::int64_t rows : {1, 2, 7, 8, 9, 64, 65}) {
      const std::vector<float> some(x.begin(), x.begin() + rows * kFeatures);
      const auto part = RunOp(step, {Floats({rows, kFeatures}, some)});
      ASSERT_TRUE(part.ok()) << part.status();
      const std::vector<float> own = (*part)[0].As<float>();
      EXPECT_EQ(own, std::vector<float>(scores.begin(), scores.begin() + rows * targets)) << rows << " rows";
    }
  }
}

TEST_P(ForestTest, FloatsAndDoublesAgree) {
  Random random(7);
  const Trees trees = Grower(random, GetParam()).Grow(20, 20, 2);
  const std::vector<float> x = RandomRows(random, 40, true);
  const auto narrow = RunOp(trees.Step(2), {Floats({40, kFeatures}, x)});
  const auto wide =
      RunOp(trees.Step(2), {Tensor<double>(proto::FP64, {40, kFeatures}, {x.begin(), x.end()})});
  ASSERT_TRUE(narrow.ok() && wide.ok()) << narrow.status() << wide.status();
  const auto a = (*narrow)[0].As<float>();
  const auto b = (*wide)[0].As<float>();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Modes, ForestTest,
                         testing::Values(std::vector<std::string>{"BRANCH_LEQ"},
                                         std::vector<std::string>{"BRANCH_LT"},
                                         std::vector<std::string>{"BRANCH_LEQ", "BRANCH_LT"},
                                         std::vector<std::string>{"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                                                  "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"}));

// Many trees and rows, so that threads share them: the same bits as on one thread.
TEST(Forest, ThreadsChangeNothing) {
  Random random(11);
  const Trees trees = Grower(random, {"BRANCH_LEQ"}).Grow(90, 80, 1);
  const proto::Step step = trees.Step(1);
  const int before = omp_get_max_threads();
  for (std::int64_t rows : {1, 3, 700}) {
    const TestTensor x = Floats({rows, kFeatures}, RandomRows(random, rows, false));
    omp_set_num_threads(1);
    const auto alone = RunOp(step, {x});
    omp_set_num_threads(4);
    const auto together = RunOp(step, {x});
    ASSERT_TRUE(alone.ok() && together.ok());
    EXPECT_EQ((*alone)[0].data, (*together)[0].data);
  }
  omp_set_num_threads(before);
}

// A path of a hundred thousand tests costs neither stack nor time beyond its steps.
TEST(Forest, DeepPath) {
  constexpr std::int64_t kDepth = 100'000;
  Trees trees;
  for (std::int64_t i = 0; i <= 2 * kDepth; ++i) {
    const bool split = i % 2 == 0 && i < 2 * kDepth;
    trees.trees.push_back(0);
    trees.nodes.push_back(i);
    trees.features.push_back(0);
    trees.modes.emplace_back(split ? "BRANCH_LEQ" : "LEAF");
    trees.values.push_back(static_cast<float>(i));
    trees.yes.push_back(split ? i + 1 : 0);
    trees.no.push_back(split ? i + 2 : 0);
    trees.missing.push_back(0);
    if (split) continue;
    trees.weight_trees.push_back(0);
    trees.weight_nodes.push_back(i);
    trees.weight_targets.push_back(0);
    trees.weights.push_back(static_cast<float>(i));
  }
  const auto out = RunOp(trees.Step(1), {Floats({3, 1}, {-1, 1000, 1e9F})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].As<float>(), (std::vector<float>{1, 1001, 2 * kDepth}));
}

// A list is damaged at one place: an error that names the step, or a result; never memory of others.
TEST(Forest, DamagedLists) {
  Random random(5);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Trees trees = Grower(random, {"BRANCH_LEQ"}).Grow(3, 6, 2);
    std::vector<std::int64_t>* lists[] = {
        &trees.trees, &trees.nodes,        &trees.features,     &trees.yes,
        &trees.no,    &trees.weight_trees, &trees.weight_nodes, &trees.weight_targets};
    auto& list = *lists[random.Below(std::size(lists))];
    if (list.empty()) continue;
    const std::int64_t wild[] = {-1,
                                 0,
                                 1,
                                 8,
                                 9,
                                 std::int64_t{1} << 31,
                                 std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<std::int64_t>::min()};
    switch (random.Below(3)) {
      case 0:
        list.pop_back();
        break;
      case 1:
        list.push_back(wild[random.Below(std::size(wild))]);
        break;
      default:
        list[random.Below(list.size())] = wild[random.Below(std::size(wild))];
    }
    const auto out = RunOp(trees.Step(2), {Floats({9, kFeatures}, RandomRows(random, 9, true))});
    refused += out.ok() ? 0 : 1;
    if (out.ok()) continue;
    EXPECT_NE(out.status().message().find(kRegressor), std::string::npos) << out.status();
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace troupe::gpu
