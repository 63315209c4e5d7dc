// Operators that change a shape and move nothing: Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout,
// Shape, Size, Cast.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/text_cast.hpp"

namespace troupe::gpu {
namespace {

// The output has the input's bytes: a plan aliases the two and never runs this.
class ViewKernel final : public Kernel {
 public:
  absl::Status Run(In in, Out out, std::byte*) const override {
    CopyBytes(out[0].data, in[0].data, BytesOf(out[0]));
    return absl::OkStatus();
  }
  [[nodiscard]] int in_place_input() const override { return 0; }
  [[nodiscard]] int view_of_input() const override { return 0; }
};

Made MakeCopy(const StepContext&, Infos, Infos) {
  return std::make_unique<ViewKernel>();
}

// --- Reshape
// ------------------------------------------------------------------------------------------------------

absl::StatusOr<Shape> ResolveReshape(const StepContext& ctx, const ValueInfo& in, Shape target) {
  const bool allow_zero = ctx.Int("allowzero", 0) != 0;
  const std::string asked = FormatShape(target);
  std::int64_t known = 1;
  std::ptrdiff_t open = -1;
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && !allow_zero) {
      if (i >= in.shape.size())
        return ctx.Error(absl::StrCat("shape ", asked, " copies a dimension not there"));
      target[i] = in.shape[i];
    }
    if (target[i] == -1) {
      if (open >= 0) return ctx.Error(absl::StrCat("shape ", asked, " leaves two dimensions open"));
      open = static_cast<std::ptrdiff_t>(i);
    } else if (target[i] < 0 || __builtin_mul_overflow(known, target[i], &known)) {
      return ctx.Error(absl::StrCat("shape ", asked, " is not a shape"));
    }
  }
  if (open >= 0) {
    if (known == 0 || in.elements() % known != 0) {
      return ctx.Error(absl::StrCat("shape ", asked, " does not divide ", FormatShape(in.shape)));
    }
    target[static_cast<std::size_t>(open)] = in.elements() / known;
  } else if (known != in.elements()) {
    return ctx.Error(absl::StrCat("shape ", asked, " does not hold the elements of ", FormatShape(in.shape)));
  }
  return target;
}

Inferred InferReshape(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_ASSIGN_OR_RETURN(std::optional<Shape> target, KnownInts(ctx, in, 1));
  if (!target) {  // the rank is known, and that the elements stay the same
    Shape bound(static_cast<std::size_t>(in[1].elements()), 1);
    if (!bound.empty()) bound[0] = in[0].elements();
    return OneValue(ctx, in[0].type, std::move(bound), true);
  }
  TROUPE_ASSIGN_OR_RETURN(Shape shape, ResolveReshape(ctx, in[0], *std::move(target)));
  return OneValue(ctx, in[0].type, std::move(shape));
}

// --- Flatten
// ------------------------------------------------------------------------------------------------------

Inferred InferFlatten(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kAnyTypes));
  const auto rank = static_cast<std::int64_t>(in[0].shape.size());
  std::int64_t axis = ctx.Int("axis", 1);
  if (axis < -rank || axis > rank) return ctx.Error(absl::StrCat("axis ", axis, " is outside of the input"));
  if (axis < 0) axis += rank;
  const auto middle = in[0].shape.begin() + axis;
  return OneValue(ctx, in[0].type,
                  {Product(Shape(in[0].shape.begin(), middle)), Product(Shape(middle, in[0].shape.end()))});
}

// --- Squeeze, Unsqueeze: axes as an attribute (to opset 12) or an input
// ----------------------------------------------

Inferred InferSqueeze(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 2, kAnyTypes));
  const Shape& shape = in[0].shape;
  Shape axes = ctx.Ints("axes");
  bool all = axes.empty();
  if (Present(in, 1)) {
    TROUPE_ASSIGN_OR_RETURN(axes, RequireInts(ctx, in, 1, "axes"));
    all = false;
  }
  TROUPE_ASSIGN_OR_RETURN(axes, NormalizeAxes(ctx, std::move(axes), shape.size()));
  Shape out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool named = std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(i));
    if (named && shape[i] != 1) return ctx.Error(absl::StrCat("dimension ", i, " is ", shape[i], ", not 1"));
    if (named || (all && shape[i] == 1)) continue;
    out.push_back(shape[i]);
  }
  return OneValue(ctx, in[0].type, std::move(out));
}

Inferred InferUnsqueeze(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 2, kAnyTypes));
  Shape axes = ctx.Ints("axes");
  if (Present(in, 1)) {
    TROUPE_ASSIGN_OR_RETURN(axes, RequireInts(ctx, in, 1, "axes"));
  }
  const std::size_t rank = in[0].shape.size() + axes.size();
  if (rank > 64) return ctx.Error("more than 64 dimensions");
  TROUPE_ASSIGN_OR_RETURN(axes, NormalizeAxes(ctx, std::move(axes), rank));
  Shape out;
  auto next = in[0].shape.begin();
  for (std::size_t i = 0; i < rank; ++i) {
    const bool added = std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(i));
    out.push_back(added ? 1 : *next++);
  }
  return OneValue(ctx, in[0].type, std::move(out));
}

// --- Identity, Dropout
// ------------------------------------------------------------------------------------------------

Inferred InferIdentity(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kAnyTypes));
  return OneValue(ctx, in[0].type, in[0].shape);
}

// A model that trains would give something else each time. With a ratio of 0 it drops nothing either.
absl::Status CheckDropsNothing(const StepContext& ctx, Infos in) {
  if (!Present(in, 2)) return absl::OkStatus();
  if (in[2].type != proto::BOOL || in[2].elements() != 1) return ctx.Error("training_mode must be one BOOL");
  if (in[2].constant == nullptr)
    return ctx.Error("training_mode (input 2) must be known when the plan is made");
  if (in[2].constant[0] == std::byte{0}) return absl::OkStatus();
  std::vector<float> ratio = {0.5F};
  if (Present(in, 1)) {
    TROUPE_ASSIGN_OR_RETURN(ratio, RequireFloats(ctx, in, 1, "ratio"));
  }
  if (ratio.size() == 1 && ratio[0] == 0) return absl::OkStatus();
  return ctx.Error("training mode with a ratio above 0 is not served; export the model in inference mode");
}

Inferred InferDropout(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 3, kFloatTypes));
  TROUPE_RETURN_IF_ERROR(CheckDropsNothing(ctx, in));
  ValueInfo mask;
  mask.type = ctx.opset < 10 ? in[0].type : proto::BOOL;
  mask.shape = in[0].shape;
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, OneValue(ctx, in[0].type, in[0].shape));
  if (ctx.step.outputs_size() > 1) out.push_back(std::move(mask));
  return out;
}

Made MakeDropout(const StepContext&, Infos, Infos) {
  return MakeKernel(
      [](In in, Out out, std::byte*) {
        CopyBytes(out[0].data, in[0].data, BytesOf(out[0]));
        if (out.size() > 1 && out[1].data != nullptr) {  // nothing is dropped: all true
          const std::vector<std::uint8_t> ones(static_cast<std::size_t>(Elements(out[1])), 1);
          ConvertElements(proto::BOOL, reinterpret_cast<const std::byte*>(ones.data()), out[1].type,
                          out[1].data, Elements(out[1]));
        }
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

// --- Shape, Size
// --------------------------------------------------------------------------------------------------

// The range [start, end) of dimensions that Shape gives; both clamp (opset 15).
std::pair<std::int64_t, std::int64_t> ShapeRange(const StepContext& ctx, std::int64_t rank) {
  const auto clamp = [rank](std::int64_t axis) {
    return std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  const std::int64_t start = clamp(ctx.Int("start", 0));
  return {start, std::max(start, clamp(ctx.Int("end", rank)))};
}

Inferred InferShape(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kAnyTypes));
  const auto [start, end] = ShapeRange(ctx, static_cast<std::int64_t>(in[0].shape.size()));
  return OneValue(ctx, proto::INT64, {end - start});
}

Made MakeShape(const StepContext& ctx, Infos in, Infos) {
  const auto [start, end] = ShapeRange(ctx, static_cast<std::int64_t>(in[0].shape.size()));
  return MakeKernel([start = start, end = end](In in, Out out, std::byte*) {
    std::copy(in[0].shape.begin() + start, in[0].shape.begin() + end, MutableData<std::int64_t>(out[0]));
    return absl::OkStatus();
  });
}

Inferred InferSize(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kAnyTypes));
  return OneValue(ctx, proto::INT64, {});
}

Made MakeSize(const StepContext&, Infos, Infos) {
  return MakeKernel([](In in, Out out, std::byte*) {
    *MutableData<std::int64_t>(out[0]) = Elements(in[0]);
    return absl::OkStatus();
  });
}

// --- Cast, CastLike
// ---------------------------------------------------------------------------------------------------

Inferred InferCast(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kAnyTypes));
  const std::int64_t to = ctx.Int("to", 0);
  const proto::DataType type = FromOnnxType(to);
  if (!Has(kAnyTypes, type))
    return ctx.Error(
        absl::StrCat("cannot cast to ", OnnxTypeName(to), " (ONNX type ", to, "); cast to another type"));
  return InferCastTo(ctx, in[0], type);
}

Inferred InferCastLike(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kAnyTypes));
  return InferCastTo(ctx, in[0], in[1].type);
}

Made MakeCast(const StepContext& ctx, Infos in, Infos out) {
  if (in[0].type == out[0].type) return MakeCopy(ctx, in, out);
  if (in[0].type == proto::BYTES || out[0].type == proto::BYTES) return MakeTextCast(ctx, in, out);
  return MakeKernel([](In in, Out out, std::byte*) {
    ConvertElements(in[0].type, in[0].data, out[0].type, out[0].data, Elements(in[0]));
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "Reshape",
     .min_opset = 5,
     .max_opset = kNewestOpset,
     .infer = &InferReshape,
     .make = &MakeCopy,
     .types = kAnyTypes},
    {.name = "Flatten",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferFlatten,
     .make = &MakeCopy,
     .types = kAnyTypes},
    {.name = "Squeeze",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferSqueeze,
     .make = &MakeCopy,
     .types = kAnyTypes},
    {.name = "Unsqueeze",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferUnsqueeze,
     .make = &MakeCopy,
     .types = kAnyTypes},
    {.name = "Identity",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferIdentity,
     .make = &MakeCopy,
     .types = kAnyTypes},
    {.name = "Dropout",
     .min_opset = 7,
     .max_opset = kNewestOpset,
     .infer = &InferDropout,
     .make = &MakeDropout,
     .types = kFloatTypes},
    {.name = "Shape",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferShape,
     .make = &MakeShape,
     .types = kAnyTypes},
    {.name = "Size",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferSize,
     .make = &MakeSize,
     .types = kAnyTypes},
    {.name = "Cast",
     .min_opset = 6,
     .max_opset = kNewestOpset,
     .infer = &InferCast,
     .make = &MakeCast,
     .types = kAnyTypes},
    {.name = "CastLike",
     .min_opset = 15,
     .max_opset = kNewestOpset,
     .infer = &InferCastLike,
     .make = &MakeCast,
     .types = kAnyTypes},
};

}  // namespace

std::span<const Operator> ReshapeOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
