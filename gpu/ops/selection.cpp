// ArgMax, ArgMin, TopK, Hardmax.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

// One axis of a tensor seen as [outer, dim, inner].
struct Lines {
  std::int64_t outer = 1;
  std::int64_t dim = 1;
  std::int64_t inner = 1;
  Lines(const Shape& shape, std::int64_t axis)
      : outer(Product(std::span(shape).first(static_cast<std::size_t>(axis)))),
        dim(shape[axis]),
        inner(Product(std::span(shape).subspan(static_cast<std::size_t>(axis) + 1))) {}
  // f(first element, line number); elements of a line are `inner` apart.
  template <class F>
  void ForEach(F&& f) const {
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) f(o * dim * inner + i, o, i);
    }
  }
};

// A strict order even with NaN, which stands above every number.
template <class T>
bool Above(T x, T y) {
  return x > y || (x != x && y == y);
}

// --- ArgMax, ArgMin
// -----------------------------------------------------------------------------------------------

Inferred InferArg(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kNumberTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  Shape shape = in[0].shape;
  if (shape[axis] == 0) return ctx.Error("an empty axis has no extreme");
  if (ctx.Int("keepdims", 1) != 0) {
    shape[axis] = 1;
  } else {
    shape.erase(shape.begin() + axis);
  }
  return OneValue(ctx, proto::INT64, std::move(shape));
}

Made MakeArg(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  const bool largest = ctx.step.op() == "ArgMax";
  const bool last = ctx.Int("select_last_index", 0) != 0;
  return MakeKernel([=, lines = Lines(in[0].shape, axis)](In in, Out out, std::byte*) {
    ForWideType(in[0].type, [&](auto zero) {
      const auto* data = Data<decltype(zero)>(in[0]);
      auto* result = MutableData<std::int64_t>(out[0]);
      lines.ForEach([&](std::int64_t first, std::int64_t, std::int64_t) {
        std::int64_t best = 0;
        for (std::int64_t i = 1; i < lines.dim; ++i) {
          const auto challenger = data[first + i * lines.inner];
          const auto champion = data[first + best * lines.inner];
          const bool beats = largest ? Above(challenger, champion) : Above(champion, challenger);
          const bool beaten = largest ? Above(champion, challenger) : Above(challenger, champion);
          if (beats || (last && !beaten)) best = i;
        }
        *result++ = best;
      });
      return 0;
    });
    return absl::OkStatus();
  });
}

// --- TopK
// ---------------------------------------------------------------------------------------------------------

// -1 when only the run knows.
absl::StatusOr<std::int64_t> KnownK(const StepContext& ctx, Infos in) {
  if (ctx.opset < 10) return ctx.Int("k", 0);
  if (in[1].elements() != 1) return ctx.Error("k must be one number");
  TROUPE_ASSIGN_OR_RETURN(const std::optional<Shape> k, KnownInts(ctx, in, 1));
  if (!k) return -1;
  if (k->front() < 0) return ctx.Error(absl::StrCat("k is ", k->front()));
  return k->front();
}

Inferred InferTopK(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, ctx.opset < 10 ? 1 : 2, 2, kNumberTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", -1), in[0].shape.size()));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t k, KnownK(ctx, in));
  Shape shape = in[0].shape;
  if (k > shape[axis])
    return ctx.Error(absl::StrCat("k is ", k, ", the axis has ", shape[axis], " elements"));
  if (k >= 0) shape[axis] = k;
  TROUPE_ASSIGN_OR_RETURN(ValueInfo values, Value(ctx, in[0].type, shape, k < 0));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo indices, Value(ctx, proto::INT64, shape, k < 0));
  std::vector<ValueInfo> out = {std::move(values), std::move(indices)};
  out.resize(static_cast<std::size_t>(std::clamp(ctx.step.outputs_size(), 1, 2)));
  return out;
}

Made MakeTopK(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", -1), in[0].shape.size()));
  const bool largest = ctx.Int("largest", 1) != 0;
  const Lines lines(in[0].shape, axis);
  const std::int64_t k = out[0].shape[axis];
  return MakeKernel(
      [=](In in, Out out, std::byte* scratch) {
        auto* order = reinterpret_cast<std::int64_t*>(scratch);
        ForWideType(in[0].type, [&](auto zero) {
          using T = decltype(zero);
          const T* data = Data<T>(in[0]);
          lines.ForEach([&](std::int64_t first, std::int64_t o, std::int64_t inner) {
            std::iota(order, order + lines.dim, 0);
            // Equal elements keep their order: the lower index comes first.
            std::partial_sort(order, order + k, order + lines.dim, [&](std::int64_t a, std::int64_t b) {
              const T x = data[first + a * lines.inner];
              const T y = data[first + b * lines.inner];
              if (Above(x, y)) return largest;
              if (Above(y, x)) return !largest;
              return a < b;
            });
            for (std::int64_t i = 0; i < k; ++i) {
              const std::int64_t place = (o * k + i) * lines.inner + inner;
              if (out[0].data != nullptr)
                MutableData<T>(out[0])[place] = data[first + order[i] * lines.inner];
              if (out.size() > 1 && out[1].data != nullptr)
                MutableData<std::int64_t>(out[1])[place] = order[i];
            }
          });
          return 0;
        });
        return absl::OkStatus();
      },
      Bytes(static_cast<std::uint64_t>(lines.dim) * sizeof(std::int64_t)));
}

// --- Hardmax: 1 for the first largest element of each line
// ------------------------------------------------------------

// To opset 12 the tensor is seen as a matrix that is cut at the axis.
absl::StatusOr<Lines> HardmaxLines(const StepContext& ctx, const Shape& shape) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", ctx.opset < 13 ? 1 : -1), shape.size()));
  if (ctx.opset >= 13) return Lines(shape, axis);
  const auto cut = static_cast<std::size_t>(axis);
  return Lines({Product(std::span(shape).first(cut)), Product(std::span(shape).subspan(cut))}, 1);
}

Inferred InferHardmax(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kFloatTypes));
  TROUPE_RETURN_IF_ERROR(HardmaxLines(ctx, in[0].shape).status());
  return OneValue(ctx, in[0].type, in[0].shape);
}

Made MakeHardmax(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Lines lines, HardmaxLines(ctx, in[0].shape));
  return MakeKernel([lines](In in, Out out, std::byte*) {
    ForWideType(in[0].type, [&](auto zero) {
      using T = decltype(zero);
      const T* data = Data<T>(in[0]);
      T* result = MutableData<T>(out[0]);
      lines.ForEach([&](std::int64_t first, std::int64_t, std::int64_t) {
        std::int64_t best = 0;
        for (std::int64_t i = 0; i < lines.dim; ++i) {
          if (Above(data[first + i * lines.inner], data[first + best * lines.inner])) best = i;
        }
        for (std::int64_t i = 0; i < lines.dim; ++i) result[first + i * lines.inner] = T(i == best ? 1 : 0);
      });
      return 0;
    });
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "ArgMax",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferArg,
     .make = &Widened<&MakeArg>,
     .types = kNumberTypes},
    {.name = "ArgMin",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferArg,
     .make = &Widened<&MakeArg>,
     .types = kNumberTypes},
    {.name = "TopK",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferTopK,
     .make = &Widened<&MakeTopK>,
     .types = kNumberTypes},
    {.name = "Hardmax",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferHardmax,
     .make = &Widened<&MakeHardmax>,
     .types = kFloatTypes},
};

}  // namespace

std::span<const Operator> SelectionOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
