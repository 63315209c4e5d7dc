// Ensembles of trees: TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble of ai.onnx.ml.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/class_labels.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/feature_rows.hpp"
#include "gpu/ops/forest.hpp"
#include "gpu/ops/forest_walk.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/post_transform.hpp"

namespace troupe::gpu {
namespace {

// A file may claim any number of targets; each takes memory for every row.
constexpr std::int64_t kMostTargets = 1 << 20;

bool IsClassifier(const StepContext& ctx) {
  return ctx.step.op() == "ai.onnx.ml.TreeEnsembleClassifier";
}

bool IsNewForm(const StepContext& ctx) {
  return ctx.step.op() == "ai.onnx.ml.TreeEnsemble";
}

absl::StatusOr<std::int64_t> TargetsOf(const StepContext& ctx) {
  std::int64_t targets = ctx.Int("n_targets", 1);
  if (IsClassifier(ctx)) {
    TROUPE_ASSIGN_OR_RETURN(const auto labels, ClassLabels(ctx, "classlabels_int64s"));
    targets = static_cast<std::int64_t>(labels.size());
    if (targets < 2) return ctx.Error(absl::StrCat("has ", targets, " class, at least 2 are needed"));
  }
  if (targets < 1 || targets > kMostTargets)
    return ctx.Error(absl::StrCat("has ", targets, " targets, 1 to ", kMostTargets, " are supported"));
  return targets;
}

absl::StatusOr<Aggregate> AggregateOf(const StepContext& ctx) {
  constexpr std::string_view kNames[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  if (IsClassifier(ctx)) return Aggregate::kSum;
  if (IsNewForm(ctx)) {
    const std::int64_t number = ctx.Int("aggregate_function", 1);
    if (number >= 0 && number < 4) return static_cast<Aggregate>(number);
    return ctx.Error(absl::StrCat("aggregate_function ", number, " is not known"));
  }
  const std::string name = ctx.Text("aggregate_function", "SUM");
  const auto* found = std::ranges::find(kNames, name);
  if (found != std::end(kNames)) return static_cast<Aggregate>(found - kNames);
  return ctx.Error(absl::StrCat("aggregate_function '", name, "' is not known"));
}

// What follows the sums.
struct Ending {
  PostTransform transform = PostTransform::kNone;
  std::vector<double> base;
  std::vector<std::int64_t> labels;  // of a classifier
  // Of two classes: the one that all weights name, or -1. Its score alone decides. Where it is class 0, as exporters
  // write it, the score is for the second class all the same.
  int only = -1;
  double threshold = 0;  // a score above it means the second class
};

struct Ensemble {
  Forest forest;
  Aggregate aggregate = Aggregate::kSum;
  Ending ending;
};

absl::Status CheckBase(const StepContext& ctx, const Ensemble& ensemble) {
  const std::size_t base = ensemble.ending.base.size();
  std::size_t scores = static_cast<std::size_t>(ensemble.forest.targets);
  if (ensemble.ending.only >= 0) scores = ensemble.ending.only == 0 ? 1 : 0;
  if (base == 0 || base == scores) return absl::OkStatus();
  return ctx.Error(absl::StrCat("has ", base, " base values, expected none",
                                scores == 0 ? "" : absl::StrCat(" or ", scores),
                                ensemble.ending.only < 0 ? "" : ", since all weights are of one class"));
}

absl::Status ReadClasses(const StepContext& ctx, Ensemble& ensemble) {
  Ending& ending = ensemble.ending;
  TROUPE_ASSIGN_OR_RETURN(ending.labels, ClassLabels(ctx, "classlabels_int64s"));
  const auto& weights = ensemble.forest.weights;
  if (ending.labels.size() != 2 || weights.empty()) return absl::OkStatus();
  const auto other = [&](const LeafWeight& weight) { return weight.target != weights[0].target; };
  if (std::ranges::any_of(weights, other)) return absl::OkStatus();
  ending.only = weights[0].target;
  const auto negative = [](const LeafWeight& weight) { return weight.weight < 0; };
  ending.threshold = std::ranges::any_of(weights, negative) ? 0 : 0.5;
  if (ending.only != 0 || ending.transform != PostTransform::kProbit) return absl::OkStatus();
  return ctx.Error(
      "has weights of one class and post_transform PROBIT, which gives no score for the other class; export "
      "weights of both classes");
}

absl::StatusOr<Ensemble> ReadEnsemble(const StepContext& ctx) {
  Ensemble ensemble;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t targets, TargetsOf(ctx));
  auto raw = IsNewForm(ctx) ? ReadForest5(ctx) : ReadForest(ctx, IsClassifier(ctx) ? "class" : "target");
  if (!raw.ok()) return raw.status();
  raw->targets = targets;
  for (const LeafWeight& weight : raw->weights)
    if (weight.target >= targets)
      return ctx.Error(absl::StrCat("a leaf's weight is for target ", weight.target, " of ", targets));
  TROUPE_ASSIGN_OR_RETURN(ensemble.forest, ArrangeForest(ctx, *std::move(raw)));
  TROUPE_ASSIGN_OR_RETURN(ensemble.aggregate, AggregateOf(ctx));
  TROUPE_ASSIGN_OR_RETURN(ensemble.ending.transform, PostTransformOf(ctx));
  if (!IsNewForm(ctx)) {
    TROUPE_ASSIGN_OR_RETURN(ensemble.ending.base, NumberList(ctx, "base_values"));
  }
  if (IsClassifier(ctx)) TROUPE_RETURN_IF_ERROR(ReadClasses(ctx, ensemble));
  TROUPE_RETURN_IF_ERROR(CheckBase(ctx, ensemble));
  return ensemble;
}

absl::Status JudgeEnsemble(const StepContext& ctx) {
  return ReadEnsemble(ctx).status();
}

// Shapes follow from few attributes; the trees themselves are judged at import, and again when a kernel is
// made of them.
Inferred InferEnsemble(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const FeatureRows rows, FeatureRowsOf(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t targets, TargetsOf(ctx));
  const auto features = IntList(ctx, "nodes_featureids");
  const auto modes = TextList(ctx, "nodes_modes");
  for (std::size_t i = 0; i < features.size(); ++i)
    if (features[i] >= rows.features && (i >= modes.size() || *modes[i] != "LEAF"))
      return ctx.Error(absl::StrCat("tests feature ", features[i], ", the input has ", rows.features));
  const bool half = in[0].type == proto::FP16;
  const bool wide = in[0].type == proto::FP64 && IsNewForm(ctx);
  TROUPE_ASSIGN_OR_RETURN(
      ValueInfo scores,
      Value(ctx, half ? proto::FP16 : (wide ? proto::FP64 : proto::FP32), {rows.rows, targets}));
  if (!IsClassifier(ctx)) return std::vector<ValueInfo>{std::move(scores)};
  TROUPE_ASSIGN_OR_RETURN(ValueInfo labels, Value(ctx, proto::INT64, {rows.rows}));
  return std::vector<ValueInfo>{std::move(labels), std::move(scores)};
}

// What every kernel of an ensemble reads, whatever its rows.
template <class T>
class Scorer {
 public:
  explicit Scorer(const Ensemble& ensemble)
      : walker_(ensemble.forest, ensemble.aggregate),
        ending_(ensemble.ending),
        targets_(ensemble.forest.targets),
        features_(ensemble.forest.features),
        base_(ending_.base.begin(), ending_.base.end()) {
    std::vector<bool> scored(static_cast<std::size_t>(targets_), !base_.empty());
    for (const LeafWeight& weight : ensemble.forest.weights)
      scored[static_cast<std::size_t>(weight.target)] = true;
    for (std::size_t i = 0; i < scored.size(); ++i)
      if (scored[i]) candidates_.push_back(i);
  }

  [[nodiscard]] const ForestWalker<T>& walker() const { return walker_; }
  [[nodiscard]] std::int64_t targets() const { return targets_; }
  [[nodiscard]] std::int64_t features() const { return features_; }

  // From the sums of one row to its scores and, for a classifier, its label.
  void End(std::span<T> scores, std::int64_t* label) const {
    for (std::size_t i = 0; i < base_.size(); ++i) scores[i] += base_[i];
    if (ending_.only == 0) return EndOneScore(scores, *label);
    if (label != nullptr) *label = LabelOf(scores);
    // onnxruntime leaves a single score as it is, but for PROBIT; so do the exporters' own checks.
    if (targets_ > 1 || ending_.transform == PostTransform::kProbit) Transform(ending_.transform, scores);
  }

 private:
  // Of the classes that some weight or base value is for, the first with the largest score.
  [[nodiscard]] std::int64_t LabelOf(std::span<const T> scores) const {
    if (ending_.only == 1) return ending_.labels[scores[1] > T(ending_.threshold) ? 1 : 0];
    std::size_t best = candidates_.empty() ? 0 : candidates_.front();
    for (std::size_t i : candidates_)
      if (scores[i] > scores[best]) best = i;
    return ending_.labels[best];
  }

  void EndOneScore(std::span<T> scores, std::int64_t& label) const {
    const T score = scores[0];
    label = ending_.labels[score > T(ending_.threshold) ? 1 : 0];
    if (ending_.transform == PostTransform::kLogistic) {
      scores[1] = Logistic(score);
      scores[0] = Logistic(-score);
    } else {
      scores[1] = score;
      scores[0] = ending_.threshold > 0 ? 1 - score : -score;
    }
  }

  ForestWalker<T> walker_;
  Ending ending_;
  std::int64_t targets_;
  std::int64_t features_;
  std::vector<T> base_;
  std::vector<std::size_t> candidates_;
};

// The plans of a model differ in their rows alone: those that live at the same time share the trees.
template <class T>
absl::StatusOr<std::shared_ptr<const Scorer<T>>> SharedScorer(const StepContext& ctx) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const Scorer<T>>> scorers;
  Sha256 digest;
  digest.Update(ctx.step.op());
  for (const proto::Attribute& attribute : ctx.step.attributes())
    digest.Update(attribute.SerializeAsString());
  const std::string key = digest.Finish();
  {
    const std::lock_guard lock(mutex);
    if (auto living = scorers[key].lock(); living != nullptr) return living;
  }
  TROUPE_ASSIGN_OR_RETURN(const Ensemble ensemble, ReadEnsemble(ctx));
  auto made = std::make_shared<const Scorer<T>>(ensemble);
  const std::lock_guard lock(mutex);
  std::erase_if(scorers, [](const auto& entry) { return entry.second.expired(); });
  scorers[key] = made;
  return made;
}

template <class T>
class EnsembleKernel final : public Kernel {
 public:
  EnsembleKernel(std::shared_ptr<const Scorer<T>> scorer, FeatureRows rows)
      : scorer_(std::move(scorer)), rows_(rows) {}

  [[nodiscard]] Bytes scratch() const override {
    return Bytes(static_cast<std::uint64_t>(scorer_->walker().trees()) * sizeof(std::int32_t));
  }

  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    const ForestWalker<T>& walker = scorer_->walker();
    const std::int64_t targets = scorer_->targets();
    const T* x = Data<T>(in[0]);
    T* scores = MutableData<T>(out[out.size() - 1]);
    std::int64_t* labels = out.size() == 2 ? MutableData<std::int64_t>(out[0]) : nullptr;
    const auto end = [&](std::int64_t row) {
      scorer_->End({scores + row * targets, static_cast<std::size_t>(targets)},
                   labels == nullptr ? nullptr : labels + row);
    };
    if (rows_.rows < ForestWalker<T>::kFewRows) {
      auto* leaves = reinterpret_cast<std::int32_t*>(scratch);
      for (std::int64_t row = 0; row < rows_.rows; ++row) {
        walker.ScoreRow(x + row * rows_.features, scores + row * targets, leaves);
        end(row);
      }
      return absl::OkStatus();
    }
    ParallelRanges(rows_.rows, walker.row_cost(), [&](std::int64_t first, std::int64_t last) {
      for (; first < last; first += ForestWalker<T>::kBlockRows) {
        const std::int64_t rows = std::min(ForestWalker<T>::kBlockRows, last - first);
        walker.ScoreBlock(x + first * rows_.features, rows, rows_.features, scores + first * targets,
                          targets);
        for (std::int64_t row = first; row < first + rows; ++row) end(row);
      }
    });
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<const Scorer<T>> scorer_;
  FeatureRows rows_;
};

// A threshold of 64 bits, and whole numbers that FP32 cannot hold, are compared in FP64.
bool IsWide(const StepContext& ctx, proto::DataType type) {
  for (const char* name : {"nodes_values_as_tensor", "nodes_splits"})
    if (TensorTypeOf(ctx, name) == proto::FP64) return true;
  return type == proto::FP64 || type == proto::INT32 || type == proto::INT64;
}

template <class T>
Made MakeIn(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const FeatureRows rows, FeatureRowsOf(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(auto scorer, SharedScorer<T>(ctx));
  if (scorer->features() > rows.features)
    return ctx.Error(
        absl::StrCat("tests feature ", scorer->features() - 1, ", the input has ", rows.features));
  return std::unique_ptr<Kernel>(std::make_unique<EnsembleKernel<T>>(std::move(scorer), rows));
}

Made MakeEnsemble(const StepContext& ctx, Infos in, Infos out) {
  const proto::DataType type = IsWide(ctx, in[0].type) ? proto::FP64 : proto::FP32;
  const proto::DataType out_types[] = {out.size() == 2 ? proto::INT64 : type, type};
  return MakeConverted(type == proto::FP64 ? &MakeIn<double> : &MakeIn<float>, ctx, in, out, {&type, 1},
                       {out_types, out.size()});
}

constexpr TypeSet kOldTypes = TypesOf({proto::FP32, proto::FP64, proto::INT32, proto::INT64});

constexpr Operator Ensemble(std::string_view name, TypeSet types) {
  return {.name = name,
          .min_opset = 1,
          .max_opset = kNewestOpset,
          .infer = &InferEnsemble,
          .make = &MakeEnsemble,
          .types = types,
          .judge = &JudgeEnsemble};
}

constexpr Operator kOperators[] = {
    Ensemble("ai.onnx.ml.TreeEnsembleRegressor", kOldTypes),
    {.name = "ai.onnx.ml.TreeEnsembleClassifier",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferLabelled<&InferEnsemble>,
     .make = &MakeLabelled<&MakeEnsemble>,
     .types = kOldTypes,
     .judge = &JudgeEnsemble},
    Ensemble("ai.onnx.ml.TreeEnsemble", TypesOf({proto::FP16, proto::FP32, proto::FP64})),
};

}  // namespace

std::span<const Operator> TreeEnsembleOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
