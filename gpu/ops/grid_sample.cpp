// GridSample: reads an image at the places that a grid names.
#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

enum class Mode { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

struct Sampling {
  Mode mode = Mode::kLinear;
  Padding padding = Padding::kZeros;
  bool align_corners = false;
};

absl::StatusOr<Sampling> ReadSampling(const StepContext& ctx) {
  Sampling s;
  // Opset 20 gave the modes other names, since they are not of two dimensions only.
  const std::string linear = ctx.opset < 20 ? "bilinear" : "linear";
  const std::string cubic = ctx.opset < 20 ? "bicubic" : "cubic";
  const std::string mode = ctx.Text("mode", linear);
  const std::string padding = ctx.Text("padding_mode", "zeros");
  if (mode != linear && mode != "nearest" && mode != cubic) {
    return ctx.Error(absl::StrCat("unknown mode '", mode, "' at opset ", ctx.opset));
  }
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    return ctx.Error(absl::StrCat("unknown padding_mode '", padding, "'"));
  }
  s.mode = mode == "nearest" ? Mode::kNearest : (mode == cubic ? Mode::kCubic : Mode::kLinear);
  s.padding =
      padding == "zeros" ? Padding::kZeros : (padding == "border" ? Padding::kBorder : Padding::kReflection);
  s.align_corners = ctx.Int("align_corners", 0) != 0;
  return s;
}

Inferred InferGridSample(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kFloatTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kFloatTypes));
  TROUPE_RETURN_IF_ERROR(ReadSampling(ctx).status());
  const Shape& x = in[0].shape;
  const Shape& grid = in[1].shape;
  const std::size_t most = ctx.opset < 20 ? 4 : 5;
  bool fits = x.size() >= 4 && x.size() <= most && grid.size() == x.size() && grid[0] == x[0] &&
              grid.back() == static_cast<std::int64_t>(x.size()) - 2;
  for (std::size_t d = 2; d < x.size(); ++d) fits = fits && x[d] != 0;
  if (!fits) {
    return ctx.Error(absl::StrCat("wants [N,C,H,W] and a grid [N,h,w,2]",
                                  most == 5 ? ", or [N,C,D,H,W] and a grid [N,d,h,w,3]" : "", ", has ",
                                  FormatShape(x), " and ", FormatShape(grid)));
  }
  if (x.size() == 5 && ReadSampling(ctx)->mode == Mode::kCubic) return ctx.Error("cubic wants [N,C,H,W]");
  Shape shape = {x[0], x[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  return OneValue(ctx, in[0].type, std::move(shape));
}

// One axis of the image: where it ends, for coordinates and for elements.
struct Axis {
  std::int64_t size;
  float low, high;

  [[nodiscard]] float Reflect(float at) const {
    const float range = high - low;
    if (!(range > 0)) return low;
    // Folded once by the period, so that a coordinate from far away takes no longer than a near one.
    float rest = std::fmod(at - low, 2 * range);
    if (rest < 0) rest += 2 * range;
    return rest <= range ? low + rest : high - (rest - range);
  }
  // The element nearest inside for index `at`, or -1 for nothing.
  [[nodiscard]] std::int64_t Element(float at, Padding padding) const {
    if (padding == Padding::kZeros) {
      return at >= 0 && at < static_cast<float>(size) ? static_cast<std::int64_t>(at) : -1;
    }
    if (padding == Padding::kReflection) at = std::trunc(Reflect(at));
    return static_cast<std::int64_t>(std::clamp(at, 0.0F, static_cast<float>(size - 1)));
  }
};

// Elements and weights along one axis for one coordinate.
struct Taps {
  int count = 1;
  std::array<std::int64_t, 4> element{};
  std::array<float, 4> weight{1, 0, 0, 0};
};

Taps MakeTaps(const Sampling& s, const Axis& axis, float normal) {
  const auto size = static_cast<float>(axis.size);
  float at = s.align_corners ? (normal + 1) / 2 * (size - 1) : ((normal + 1) * size - 1) / 2;
  if (!(std::abs(at) < 1e15F)) at = s.padding == Padding::kZeros ? -1e6F : 0.0F;  // infinite or not a number
  if (s.mode == Mode::kNearest) at = std::nearbyint(at);
  // Cubic pads each element that it reads, not the place that it is asked for.
  if (s.mode != Mode::kCubic && (at < axis.low || at > axis.high)) {
    if (s.padding == Padding::kBorder) at = std::clamp(at, 0.0F, size - 1);
    if (s.padding == Padding::kReflection) at = axis.Reflect(at);
  }
  Taps taps;
  if (s.mode == Mode::kNearest) {
    taps.element[0] = axis.Element(std::nearbyint(at), s.padding);
    return taps;
  }
  const float base = std::floor(at);
  const float t = at - base;
  float first = base;
  if (s.mode == Mode::kLinear) {
    taps.count = 2;
    taps.weight = {1 - t, t, 0, 0};
  } else {
    taps.count = 4;
    first = base - 1;
    constexpr float kA = -0.75F;
    const auto near = [](float d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
    const auto far = [](float d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
    taps.weight = {far(1 + t), near(t), near(1 - t), far(2 - t)};
  }
  for (int i = 0; i < taps.count; ++i) {
    taps.element[static_cast<std::size_t>(i)] = axis.Element(first + static_cast<float>(i), s.padding);
  }
  return taps;
}

float SampleAt(const float* plane, std::int64_t width, const Taps& rows, const Taps& columns) {
  float sum = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows.count); ++r) {
    if (rows.element[r] < 0) continue;
    for (std::size_t c = 0; c < static_cast<std::size_t>(columns.count); ++c) {
      if (columns.element[c] < 0) continue;
      sum += rows.weight[r] * columns.weight[c] * plane[rows.element[r] * width + columns.element[c]];
    }
  }
  return sum;
}

// Computed on FP32 (MakeConverted below).
Made MakeGridSampleOf(const StepContext& ctx, Infos, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Sampling s, ReadSampling(ctx));
  return MakeKernel([s](In in, Out out, std::byte*) {
    const Shape& x = in[0].shape;
    const auto axis = [&](std::int64_t size) {
      return s.align_corners ? Axis{size, 0, static_cast<float>(size - 1)}
                             : Axis{size, -0.5F, static_cast<float>(size) - 0.5F};
    };
    // An image without depth is one slice, of which every place reads.
    const bool deep = x.size() == 5;
    const std::int64_t slice = x[x.size() - 2] * x.back();
    const std::int64_t dimensions = in[1].shape.back();
    const std::int64_t places = Product(std::span(in[1].shape).subspan(1, x.size() - 2));
    for (std::int64_t i = 0; i < x[0] * places; ++i) {
      const float* at = Data<float>(in[1]) + i * dimensions;
      const Taps columns = MakeTaps(s, axis(x.back()), at[0]);
      const Taps rows = MakeTaps(s, axis(x[x.size() - 2]), at[1]);
      const Taps slices = deep ? MakeTaps(s, axis(x[2]), at[2]) : Taps();
      for (std::int64_t c = 0; c < x[1]; ++c) {
        const std::int64_t plane = i / places * x[1] + c;
        const float* from = Data<float>(in[0]) + plane * slice * (deep ? x[2] : 1);
        float sum = 0;
        for (std::size_t d = 0; d < static_cast<std::size_t>(slices.count); ++d) {
          if (slices.element[d] < 0) continue;
          sum += slices.weight[d] * SampleAt(from + slices.element[d] * slice, x.back(), rows, columns);
        }
        MutableData<float>(out[0])[plane * places + i % places] = sum;
      }
    }
    return absl::OkStatus();
  });
}

Made MakeGridSample(const StepContext& ctx, Infos in, Infos out) {
  return MakeConverted(&MakeGridSampleOf, ctx, in, out, std::array{proto::FP32, proto::FP32},
                       std::array{proto::FP32});
}

constexpr Operator kOperators[] = {
    {.name = "GridSample",
     .min_opset = 16,
     .max_opset = kNewestOpset,
     .infer = &InferGridSample,
     .make = &MakeGridSample,
     .types = kFloatTypes},
};

}  // namespace

std::span<const Operator> GridSampleOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
