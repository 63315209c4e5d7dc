// AffineGrid (opset 20): the places that GridSample reads at, from an affine map for each image.
#include <array>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

// [N,H,W,2] from maps [N,2,3], or [N,D,H,W,3] from maps [N,3,4].
Inferred InferAffineGrid(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kFloatTypes));
  TROUPE_ASSIGN_OR_RETURN(const Shape size, RequireInts(ctx, in, 1, "size"));
  const auto spatial = static_cast<std::int64_t>(size.size()) - 2;
  if ((spatial != 2 && spatial != 3) || in[0].shape != Shape{size[0], spatial, spatial + 1}) {
    return ctx.Error(absl::StrCat("wants theta [N,2,3] with 4 sizes or [N,3,4] with 5, has ",
                                  FormatShape(in[0].shape), " and sizes ", FormatShape(size)));
  }
  Shape shape = {size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(spatial);
  return OneValue(ctx, in[0].type, std::move(shape));
}

// The coordinate of element `i` of `n` in [-1, 1]: of its middle, or with the corners' middles at the ends.
template <class T>
T CoordinateOf(std::int64_t i, std::int64_t n, bool align_corners) {
  if (!align_corners) return static_cast<T>(2 * i + 1) / static_cast<T>(n) - 1;
  return n == 1 ? T(0) : T(-1) + static_cast<T>(2 * i) / static_cast<T>(n - 1);
}

template <class T>
void FillGrid(In in, Out out, bool align_corners) {
  const Shape& shape = out[0].shape;
  const std::size_t spatial = shape.size() - 2;
  const std::int64_t places = Product(std::span(shape).subspan(1, spatial));
  T* to = MutableData<T>(out[0]);
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    const T* theta = Data<T>(in[0]) + n * static_cast<std::int64_t>(spatial * (spatial + 1));
    for (std::int64_t p = 0; p < places; ++p) {
      std::array<T, 3> at{};  // the last dimension's coordinate first
      std::int64_t rest = p;
      for (std::size_t d = 0; d < spatial; ++d) {
        const std::int64_t length = shape[spatial - d];
        at[d] = CoordinateOf<T>(rest % length, length, align_corners);
        rest /= length;
      }
      for (std::size_t row = 0; row < spatial; ++row) {
        T sum = theta[row * (spatial + 1) + spatial];
        for (std::size_t d = 0; d < spatial; ++d) sum += theta[row * (spatial + 1) + d] * at[d];
        *to++ = sum;
      }
    }
  }
}

Made MakeAffineGrid(const StepContext& ctx, Infos, Infos) {
  return MakeKernel([align_corners = ctx.Int("align_corners", 0) != 0](In in, Out out, std::byte*) {
    if (in[0].type == proto::FP64) {
      FillGrid<double>(in, out, align_corners);
    } else {
      FillGrid<float>(in, out, align_corners);
    }
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "AffineGrid",
     .min_opset = 20,
     .max_opset = kNewestOpset,
     .infer = &InferAffineGrid,
     .make = &FloatWidened<&MakeAffineGrid>,
     .types = kFloatTypes},
};

}  // namespace

std::span<const Operator> AffineGridOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
