// SVMRegressor and SVMClassifier of ai.onnx.ml.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/class_labels.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/feature_rows.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/post_transform.hpp"

namespace troupe::gpu {
namespace {

// Pairs of classes are compared, so work and output grow with the square of the classes.
constexpr std::size_t kMostClasses = 1024;

enum class KernelType : std::uint8_t { kLinear, kPoly, kRbf, kSigmoid };

struct Machine {
  FeatureRows rows;
  KernelType kernel = KernelType::kLinear;
  float gamma = 0;
  float coefficient0 = 0;
  float degree = 0;
  std::int64_t vectors = 0;
  std::vector<float> support;  // [vectors, features]
  std::vector<float> coefficients;
  std::vector<float> rho;
};

absl::StatusOr<Machine> ReadMachine(const StepContext& ctx, Infos in, std::int64_t vectors) {
  constexpr std::string_view kKernels[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
  Machine machine;
  TROUPE_ASSIGN_OR_RETURN(machine.rows, FeatureRowsOf(ctx, in));
  const std::string kernel = ctx.Text("kernel_type", "LINEAR");
  const auto* found = std::ranges::find(kKernels, kernel);
  if (found == std::end(kKernels)) return ctx.Error(absl::StrCat("kernel_type '", kernel, "' is not known"));
  machine.kernel = static_cast<KernelType>(found - kKernels);
  const auto parameters = FloatList(ctx, "kernel_params");
  if (!parameters.empty()) {
    TROUPE_RETURN_IF_ERROR(WantLength(ctx, "kernel_params", parameters.size(), 3));
    machine.gamma = parameters[0];
    machine.coefficient0 = parameters[1];
    machine.degree = parameters[2];
  }
  const auto support = FloatList(ctx, "support_vectors");
  if (vectors < 1 || vectors > static_cast<std::int64_t>(std::max<std::size_t>(support.size(), 1)))
    return ctx.Error(
        absl::StrCat("claims ", vectors, " support vectors, and has ", support.size(), " values for them"));
  machine.vectors = vectors;
  const auto per_vector = static_cast<std::int64_t>(support.size()) / vectors;
  if (per_vector * vectors != static_cast<std::int64_t>(support.size()) ||
      per_vector != machine.rows.features)
    return ctx.Error(absl::StrCat("has ", support.size(), " values for ", vectors, " support vectors of ",
                                  machine.rows.features, " features"));
  const auto coefficients = FloatList(ctx, "coefficients");
  const auto rho = FloatList(ctx, "rho");
  machine.support.assign(support.begin(), support.end());
  machine.coefficients.assign(coefficients.begin(), coefficients.end());
  machine.rho.assign(rho.begin(), rho.end());
  return machine;
}

float SquaredDistance(const float* a, const float* b, std::int64_t length) {
  std::array<float, 8> sums = {};
  std::int64_t i = 0;
  for (; i + 8 <= length; i += 8)
    for (std::int64_t j = 0; j < 8; ++j)
      sums[static_cast<std::size_t>(j)] += (a[i + j] - b[i + j]) * (a[i + j] - b[i + j]);
  for (; i < length; ++i) sums[0] += (a[i] - b[i]) * (a[i] - b[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0F);
}

// The kernel function of one row with every support vector.
void KernelValues(const Machine& machine, const float* x, std::span<float> out) {
  const std::int64_t features = machine.rows.features;
  if (machine.kernel == KernelType::kRbf) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = std::exp(
          -machine.gamma *
          SquaredDistance(x, machine.support.data() + static_cast<std::int64_t>(i) * features, features));
    return;
  }
  FeatureProducts({x, static_cast<std::size_t>(features)}, machine.support, {}, out);
  if (machine.kernel == KernelType::kLinear) return;
  for (float& value : out) {
    value = machine.gamma * value + machine.coefficient0;
    value = machine.kernel == KernelType::kPoly ? std::pow(value, machine.degree) : std::tanh(value);
  }
}

// --- SVMRegressor

absl::StatusOr<Machine> ReadRegressor(const StepContext& ctx, Infos in) {
  if (ctx.Text("post_transform", "NONE") != "NONE")
    return ctx.Error("has a post_transform, which regression has no use for; export it with NONE");
  const std::int64_t supports = ctx.Int("n_supports", 0);
  if (supports > 0) {
    TROUPE_ASSIGN_OR_RETURN(Machine machine, ReadMachine(ctx, in, supports));
    TROUPE_RETURN_IF_ERROR(
        WantLength(ctx, "coefficients", machine.coefficients.size(), static_cast<std::size_t>(supports)));
    TROUPE_RETURN_IF_ERROR(WantLength(ctx, "rho", machine.rho.size(), 1));
    return machine;
  }
  if (supports < 0) return ctx.Error(absl::StrCat("claims ", supports, " support vectors"));
  return ctx.Error("has no support vectors; export it as a LinearRegressor");
}

Inferred InferRegressor(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Machine machine, ReadRegressor(ctx, in));
  return OneValue(ctx, proto::FP32, {machine.rows.rows, 1});
}

Made MakeRegressor(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(Machine machine, ReadRegressor(ctx, in));
  const bool one_class = ctx.Int("one_class", 0) != 0;
  const auto values = CountElements(Shape{machine.rows.rows, machine.vectors});
  if (!values.ok()) return ctx.Error("needs too much working memory for so many rows");
  return MakeKernel(
      [machine = std::move(machine), one_class](In in, Out out, std::byte* scratch) {
        const std::int64_t features = machine.rows.features;
        const auto vectors = static_cast<std::size_t>(machine.vectors);
        ParallelRanges(
            machine.rows.rows, machine.vectors * (features + 8), [&](std::int64_t first, std::int64_t last) {
              for (std::int64_t row = first; row < last; ++row) {
                const std::span values(reinterpret_cast<float*>(scratch) + row * machine.vectors, vectors);
                KernelValues(machine, Data<float>(in[0]) + row * features, values);
                const float sum = std::inner_product(values.begin(), values.end(),
                                                     machine.coefficients.begin(), machine.rho[0]);
                MutableData<float>(out[0])[row] = !one_class ? sum : (sum > 0 ? 1.0F : -1.0F);
              }
            });
        return absl::OkStatus();
      },
      Bytes(static_cast<std::uint64_t>(*values) * sizeof(float)));
}

// --- SVMClassifier: one comparison for each pair of classes

struct Classifier {
  Machine machine;
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> begins;  // of each class: its first support vector; and behind the last
  std::vector<float> prob_a;         // none, or one for each pair
  std::vector<float> prob_b;
  PostTransform transform = PostTransform::kNone;
  [[nodiscard]] std::size_t classes() const { return labels.size(); }
  [[nodiscard]] std::size_t pairs() const { return classes() * (classes() - 1) / 2; }
  [[nodiscard]] bool probabilities() const { return !prob_a.empty(); }
  [[nodiscard]] std::size_t columns() const {
    return probabilities() || classes() == 2 ? classes() : pairs();
  }
  // Working memory of one row: kernel values, comparisons, votes, and the two matrices of the coupling.
  [[nodiscard]] std::size_t room() const {
    return static_cast<std::size_t>(machine.vectors) + pairs() + 2 * classes() + 2 * classes() * classes();
  }
};

absl::StatusOr<Classifier> ReadClassifier(const StepContext& ctx, Infos in) {
  Classifier svc;
  TROUPE_ASSIGN_OR_RETURN(svc.labels, ClassLabels(ctx, "classlabels_ints"));
  TROUPE_ASSIGN_OR_RETURN(svc.transform, PostTransformOf(ctx));
  if (svc.classes() < 2 || svc.classes() > kMostClasses)
    return ctx.Error(absl::StrCat("has ", svc.classes(), " classes, 2 to ", kMostClasses, " are supported"));
  const auto counts = IntList(ctx, "vectors_per_class");
  if (counts.empty()) return ctx.Error("has no support vectors; export it as a LinearClassifier");
  TROUPE_RETURN_IF_ERROR(WantLength(ctx, "vectors_per_class", counts.size(), svc.classes()));
  svc.begins.push_back(0);
  for (std::int64_t count : counts) {
    if (count < 0 || count > std::int64_t{1} << 31)
      return ctx.Error(absl::StrCat("attribute 'vectors_per_class' has the count ", count));
    svc.begins.push_back(svc.begins.back() + count);
  }
  TROUPE_ASSIGN_OR_RETURN(svc.machine, ReadMachine(ctx, in, svc.begins.back()));
  const auto vectors = static_cast<std::size_t>(svc.machine.vectors);
  TROUPE_RETURN_IF_ERROR(
      WantLength(ctx, "coefficients", svc.machine.coefficients.size(), (svc.classes() - 1) * vectors));
  TROUPE_RETURN_IF_ERROR(WantLength(ctx, "rho", svc.machine.rho.size(), svc.pairs()));
  const auto a = FloatList(ctx, "prob_a");
  const auto b = FloatList(ctx, "prob_b");
  TROUPE_RETURN_IF_ERROR(WantLength(ctx, "prob_b", b.size(), a.size()));
  if (!a.empty()) TROUPE_RETURN_IF_ERROR(WantLength(ctx, "prob_a", a.size(), svc.pairs()));
  svc.prob_a.assign(a.begin(), a.end());
  svc.prob_b.assign(b.begin(), b.end());
  if (svc.columns() == 2 && !svc.probabilities() && svc.transform == PostTransform::kProbit)
    return ctx.Error(
        "has one comparison and post_transform PROBIT, which gives no score for the other class");
  return svc;
}

Inferred InferClassifier(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Classifier svc, ReadClassifier(ctx, in));
  const std::int64_t rows = svc.machine.rows.rows;
  TROUPE_ASSIGN_OR_RETURN(ValueInfo labels, Value(ctx, proto::INT64, {rows}));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo scores,
                          Value(ctx, proto::FP32, {rows, static_cast<std::int64_t>(svc.columns())}));
  return std::vector<ValueInfo>{std::move(labels), std::move(scores)};
}

// The sum of what the support vectors of class `of` have against class `other`.
float Against(const Classifier& svc, std::size_t of, std::size_t other, const float* values) {
  const std::size_t row = other > of ? other - 1 : other;
  const float* coefficients =
      svc.machine.coefficients.data() + row * static_cast<std::size_t>(svc.machine.vectors);
  double sum = 0;
  for (std::int64_t m = svc.begins[of]; m < svc.begins[of + 1]; ++m) sum += coefficients[m] * values[m];
  return static_cast<float>(sum);
}

// Probabilities of classes from those of pairs: the second method of Wu, Lin and Weng, "Probability Estimates
// for Multi-class Classification by Pairwise Coupling" (2004). r is [classes, classes].
void Couple(std::size_t classes, const float* r, float* q, float* qp, std::span<float> p) {
  constexpr int kMostRounds = 100;
  const float enough = 0.005F / static_cast<float>(classes);
  for (std::size_t t = 0; t < classes; ++t) {
    p[t] = 1.0F / static_cast<float>(classes);
    q[t * classes + t] = 0;
    for (std::size_t j = 0; j < classes; ++j) {
      if (j == t) continue;
      q[t * classes + t] += r[j * classes + t] * r[j * classes + t];
      q[t * classes + j] = -r[j * classes + t] * r[t * classes + j];
    }
  }
  for (int round = 0; round < kMostRounds; ++round) {
    float pqp = 0;
    for (std::size_t t = 0; t < classes; ++t) {
      qp[t] = std::inner_product(p.begin(), p.end(), q + t * classes, 0.0F);
      pqp += p[t] * qp[t];
    }
    float error = 0;
    for (std::size_t t = 0; t < classes; ++t) error = std::max(error, std::abs(qp[t] - pqp));
    if (error < enough) return;
    for (std::size_t t = 0; t < classes; ++t) {
      const float diagonal = q[t * classes + t];
      const float step = (pqp - qp[t]) / diagonal;
      p[t] += step;
      pqp = (pqp + step * (step * diagonal + 2 * qp[t])) / (1 + step) / (1 + step);
      for (std::size_t j = 0; j < classes; ++j) {
        qp[j] = (qp[j] + step * q[t * classes + j]) / (1 + step);
        p[j] /= 1 + step;
      }
    }
  }
}

void ClassProbabilities(const Classifier& svc, const float* decisions, float* room, std::span<float> out) {
  const std::size_t classes = svc.classes();
  float* r = room;
  float* q = r + classes * classes;
  float* qp = q + classes * classes;
  std::size_t pair = 0;
  for (std::size_t i = 0; i < classes; ++i) {
    for (std::size_t j = i + 1; j < classes; ++j, ++pair) {
      const float sure = Logistic(-(decisions[pair] * svc.prob_a[pair] + svc.prob_b[pair]));
      const float value = std::clamp(sure, 1e-7F, 1 - 1e-7F);
      r[i * classes + j] = value;
      r[j * classes + i] = 1 - value;
    }
  }
  Couple(classes, r, q, qp, out);
}

void ClassifyRow(const Classifier& svc, const float* x, float* room, std::int64_t& label,
                 std::span<float> out) {
  float* values = room;
  float* decisions = values + svc.machine.vectors;
  float* votes = decisions + svc.pairs();
  const std::size_t classes = svc.classes();
  KernelValues(svc.machine, x, {values, static_cast<std::size_t>(svc.machine.vectors)});
  std::fill_n(votes, classes, 0.0F);
  std::size_t pair = 0;
  for (std::size_t i = 0; i < classes; ++i) {
    for (std::size_t j = i + 1; j < classes; ++j, ++pair) {
      decisions[pair] = Against(svc, i, j, values) + Against(svc, j, i, values) + svc.machine.rho[pair];
      votes[decisions[pair] > 0 ? i : j] += 1;
    }
  }
  label = svc.labels[static_cast<std::size_t>(std::max_element(votes, votes + classes) - votes)];
  if (svc.probabilities()) {
    ClassProbabilities(svc, decisions, votes + classes, out);
  } else if (classes > 2) {
    std::copy_n(decisions, svc.pairs(), out.begin());
  } else {
    const bool logistic = svc.transform == PostTransform::kLogistic;
    const bool none = svc.transform == PostTransform::kNone;
    out[1] = logistic ? Logistic(decisions[0]) : decisions[0];
    out[0] = none ? -out[1] : 1 - out[1];
    return;
  }
  Transform(svc.transform, out);
}

Made MakeClassifierKernel(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(Classifier svc, ReadClassifier(ctx, in));
  const auto count = CountElements(Shape{svc.machine.rows.rows, static_cast<std::int64_t>(svc.room())});
  if (!count.ok()) return ctx.Error("needs too much working memory for so many rows");
  return MakeKernel(
      [svc = std::move(svc)](In in, Out out, std::byte* scratch) {
        const std::int64_t features = svc.machine.rows.features;
        const std::size_t columns = svc.columns();
        const auto cost = svc.machine.vectors * (features + 8 + static_cast<std::int64_t>(svc.classes()));
        ParallelRanges(svc.machine.rows.rows, cost, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t row = first; row < last; ++row) {
            const auto place = static_cast<std::size_t>(row);
            ClassifyRow(svc, Data<float>(in[0]) + row * features,
                        reinterpret_cast<float*>(scratch) + place * svc.room(),
                        MutableData<std::int64_t>(out[0])[row],
                        {MutableData<float>(out[1]) + place * columns, columns});
          }
        });
        return absl::OkStatus();
      },
      Bytes(static_cast<std::uint64_t>(*count) * sizeof(float)));
}

template <MakeFunction make>
Made MakeInFloat(const StepContext& ctx, Infos in, Infos out) {
  constexpr proto::DataType kIn[] = {proto::FP32};
  const proto::DataType types[] = {out.size() == 2 ? proto::INT64 : proto::FP32, proto::FP32};
  return MakeConverted(make, ctx, in, out, kIn, {types, out.size()});
}

constexpr Operator kOperators[] = {
    {.name = "ai.onnx.ml.SVMRegressor",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferRegressor,
     .make = &MakeInFloat<&MakeRegressor>,
     .types = kFeatureTypes},
    {.name = "ai.onnx.ml.SVMClassifier",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferLabelled<&InferClassifier>,
     .make = &MakeLabelled<&MakeInFloat<&MakeClassifierKernel>>,
     .types = kFeatureTypes},
};

}  // namespace

std::span<const Operator> SupportVectorOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
