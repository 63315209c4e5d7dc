#include "gpu/ops/recurrent.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace troupe::gpu {
namespace {

using Kind = RecurrentActivation::Kind;

struct Named {
  const char* name;
  Kind kind;
  float alpha;
  float beta;
};
constexpr Named kActivations[] = {
    {"sigmoid", Kind::kSigmoid, 0, 0},
    {"tanh", Kind::kTanh, 0, 0},
    {"relu", Kind::kRelu, 0, 0},
    {"affine", Kind::kAffine, 1, 0},
    {"leakyrelu", Kind::kLeakyRelu, 0.01F, 0},
    {"thresholdedrelu", Kind::kThresholdedRelu, 1, 0},
    {"scaledtanh", Kind::kScaledTanh, 1, 1},
    {"hardsigmoid", Kind::kHardSigmoid, 0.2F, 0.5F},
    {"elu", Kind::kElu, 1, 0},
    {"softsign", Kind::kSoftsign, 0, 0},
    {"softplus", Kind::kSoftplus, 0, 0},
};

bool TakesAlpha(Kind kind) {
  return kind != Kind::kSigmoid && kind != Kind::kTanh && kind != Kind::kRelu && kind != Kind::kSoftsign &&
         kind != Kind::kSoftplus;
}
bool TakesBeta(Kind kind) {
  return kind == Kind::kAffine || kind == Kind::kScaledTanh || kind == Kind::kHardSigmoid;
}

std::vector<float> Floats(const StepContext& ctx, std::string_view name) {
  const proto::Attribute* attribute = ctx.Find(name);
  if (attribute == nullptr) return {};
  const auto& values = attribute->floats().values();
  return {values.begin(), values.end()};
}

// alpha and beta list values only for the activations that take them, in order.
absl::StatusOr<std::vector<RecurrentActivation>> ReadActivations(const StepContext& ctx,
                                                                 std::size_t per_direction,
                                                                 std::size_t directions) {
  std::vector<std::string> names;
  if (const proto::Attribute* attribute = ctx.Find("activations"); attribute != nullptr) {
    const auto& values = attribute->strings().values();
    names.assign(values.begin(), values.end());
  }
  if (names.empty()) {
    for (std::size_t d = 0; d < directions; ++d) {
      const bool gated = ctx.step.op() != "RNN";
      if (gated) names.push_back("sigmoid");
      while (names.size() % per_direction != 0 || names.size() < (d + 1) * per_direction)
        names.push_back("tanh");
    }
  }
  if (names.size() != per_direction * directions) {
    return ctx.Error(absl::StrCat("has ", names.size(), " activations, wants ", per_direction * directions));
  }
  const std::vector<float> alphas = Floats(ctx, "activation_alpha");
  const std::vector<float> betas = Floats(ctx, "activation_beta");
  std::size_t alpha = 0;
  std::size_t beta = 0;
  std::vector<RecurrentActivation> activations;
  for (std::string name : names) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                     [&](const Named& entry) { return name == entry.name; });
    if (found == std::end(kActivations)) return ctx.Error(absl::StrCat("unknown activation '", name, "'"));
    RecurrentActivation activation{found->kind, found->alpha, found->beta};
    if (TakesAlpha(found->kind) && alpha < alphas.size()) activation.alpha = alphas[alpha++];
    if (TakesBeta(found->kind) && beta < betas.size()) activation.beta = betas[beta++];
    activations.push_back(activation);
  }
  return activations;
}

absl::Status CheckShape(const StepContext& ctx, Infos in, std::size_t index, const Shape& expected) {
  if (!Present(in, index) || in[index].shape == expected) return absl::OkStatus();
  return ctx.Error(
      absl::StrCat("input ", index, " is ", FormatShape(in[index].shape), ", wants ", FormatShape(expected)));
}

}  // namespace

float RecurrentActivation::operator()(float x) const {
  switch (kind) {
    case Kind::kSigmoid:
      return 1.0F / (1.0F + std::exp(-x));
    case Kind::kTanh:
      return std::tanh(x);
    case Kind::kRelu:
      return std::max(x, 0.0F);
    case Kind::kAffine:
      return alpha * x + beta;
    case Kind::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case Kind::kThresholdedRelu:
      return x >= alpha ? x : 0.0F;
    case Kind::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case Kind::kHardSigmoid:
      return std::clamp(alpha * x + beta, 0.0F, 1.0F);
    case Kind::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case Kind::kSoftsign:
      return x / (1.0F + std::abs(x));
    case Kind::kSoftplus:
      return std::log1p(std::exp(x));
  }
  return x;
}

absl::StatusOr<Recurrent> ReadRecurrent(const StepContext& ctx, Infos in) {
  const bool lstm = ctx.step.op() == "LSTM";
  const bool gru = ctx.step.op() == "GRU";
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, lstm ? 8 : 6, TypesOf({proto::FP32})));
  for (std::size_t i = 1; i < in.size(); ++i) {
    TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, TypesOf({i == 4 ? proto::INT32 : proto::FP32})));
  }
  Recurrent r;
  r.gates = lstm ? 4 : (gru ? 3 : 1);
  r.per_direction = lstm ? 3 : (gru ? 2 : 1);
  const std::string direction = ctx.Text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return ctx.Error(absl::StrCat("unknown direction '", direction, "'"));
  }
  r.directions = direction == "bidirectional" ? 2 : 1;
  r.reverse_only = direction == "reverse";
  const std::int64_t layout = ctx.Int("layout", 0);
  if (layout != 0 && layout != 1) return ctx.Error("layout must be 0 or 1");
  r.batch_first = layout == 1;
  r.clip = ctx.Float("clip", 0.0F);
  r.input_forget = ctx.Int("input_forget", 0) != 0;
  r.linear_before_reset = ctx.Int("linear_before_reset", 0) != 0;
  if (in[0].shape.size() != 3 || in[2].shape.size() != 3)
    return ctx.Error("X and R must have three dimensions");
  r.steps = in[0].shape[r.batch_first ? 1 : 0];
  r.batch = in[0].shape[r.batch_first ? 0 : 1];
  r.input = in[0].shape[2];
  r.hidden = in[2].shape[2];
  if (ctx.Int("hidden_size", r.hidden) != r.hidden || r.hidden < 1 || r.hidden > (1 << 24)) {
    return ctx.Error("hidden_size differs from R, or is out of range");
  }
  const std::int64_t rows = r.gates * r.hidden;
  const Shape state =
      r.batch_first ? Shape{r.batch, r.directions, r.hidden} : Shape{r.directions, r.batch, r.hidden};
  TROUPE_RETURN_IF_ERROR(CheckShape(ctx, in, 1, {r.directions, rows, r.input}));
  TROUPE_RETURN_IF_ERROR(CheckShape(ctx, in, 2, {r.directions, rows, r.hidden}));
  TROUPE_RETURN_IF_ERROR(CheckShape(ctx, in, 3, {r.directions, 2 * rows}));
  TROUPE_RETURN_IF_ERROR(CheckShape(ctx, in, 4, {r.batch}));
  TROUPE_RETURN_IF_ERROR(CheckShape(ctx, in, 5, state));
  TROUPE_RETURN_IF_ERROR(CheckShape(ctx, in, 6, state));
  TROUPE_RETURN_IF_ERROR(CheckShape(ctx, in, 7, {r.directions, 3 * r.hidden}));
  TROUPE_ASSIGN_OR_RETURN(r.activations,
                          ReadActivations(ctx, r.per_direction, static_cast<std::size_t>(r.directions)));
  return r;
}

Inferred InferRecurrent(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Recurrent r, ReadRecurrent(ctx, in));
  const Shape all = r.batch_first ? Shape{r.batch, r.steps, r.directions, r.hidden}
                                  : Shape{r.steps, r.directions, r.batch, r.hidden};
  const Shape last =
      r.batch_first ? Shape{r.batch, r.directions, r.hidden} : Shape{r.directions, r.batch, r.hidden};
  std::vector<ValueInfo> out;
  const int most = ctx.step.op() == "LSTM" ? 3 : 2;
  for (int i = 0; i < std::clamp(ctx.step.outputs_size(), 1, most); ++i) {
    TROUPE_ASSIGN_OR_RETURN(ValueInfo value, Value(ctx, proto::FP32, i == 0 ? all : last));
    out.push_back(std::move(value));
  }
  return out;
}

}  // namespace troupe::gpu
