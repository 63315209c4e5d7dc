// Resize (opset 10, 11, 13, 18, 19) and Upsample (7, 9): one axis after the other, so that only neighbours along it
// are read.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/resize_taps.hpp"
#include "gpu/ops/table_limits.hpp"

namespace troupe::gpu {
namespace {

struct Target {
  Shape shape;
  std::vector<double> scales;
};

absl::StatusOr<ResizeSettings> ReadSettings(const StepContext& ctx) {
  ResizeSettings settings;
  const std::string mode = ctx.Text("mode", "nearest");
  if (mode == "linear" || mode == "bilinear" || mode == "trilinear") {
    settings.mode = ResizeMode::kLinear;
  } else if (mode == "cubic") {
    settings.mode = ResizeMode::kCubic;
  } else if (mode != "nearest") {
    return ctx.Error(absl::StrCat("unknown mode '", mode, "'"));
  }
  if (ctx.opset < 11 || ctx.step.op() == "Upsample") {
    settings.coordinates = ResizeCoordinates::kAsymmetric;
    settings.rounding = ResizeRounding::kFloor;
    return settings;
  }
  static constexpr std::pair<std::string_view, ResizeCoordinates> kCoordinates[] = {
      {"half_pixel", ResizeCoordinates::kHalfPixel},
      {"half_pixel_symmetric", ResizeCoordinates::kHalfPixelSymmetric},
      {"pytorch_half_pixel", ResizeCoordinates::kPytorchHalfPixel},
      {"align_corners", ResizeCoordinates::kAlignCorners},
      {"asymmetric", ResizeCoordinates::kAsymmetric},
      {"tf_half_pixel_for_nn", ResizeCoordinates::kTfHalfPixelForNn},
      {"tf_crop_and_resize", ResizeCoordinates::kTfCropAndResize}};
  static constexpr std::pair<std::string_view, ResizeRounding> kRoundings[] = {
      {"round_prefer_floor", ResizeRounding::kPreferFloor},
      {"round_prefer_ceil", ResizeRounding::kPreferCeil},
      {"floor", ResizeRounding::kFloor},
      {"ceil", ResizeRounding::kCeil}};
  const std::string coordinates = ctx.Text("coordinate_transformation_mode", "half_pixel");
  const std::string rounding = ctx.Text("nearest_mode", "round_prefer_floor");
  const auto* c = std::find_if(std::begin(kCoordinates), std::end(kCoordinates),
                               [&](const auto& entry) { return entry.first == coordinates; });
  const auto* r = std::find_if(std::begin(kRoundings), std::end(kRoundings),
                               [&](const auto& entry) { return entry.first == rounding; });
  if (c == std::end(kCoordinates)) return ctx.Error(absl::StrCat("unknown coordinates '", coordinates, "'"));
  if (r == std::end(kRoundings)) return ctx.Error(absl::StrCat("unknown nearest_mode '", rounding, "'"));
  if (c->second == ResizeCoordinates::kHalfPixelSymmetric && ctx.opset < 19)
    return ctx.Error(absl::StrCat("half_pixel_symmetric is of opset 19, the model has ", ctx.opset));
  settings.coordinates = c->second;
  settings.rounding = r->second;
  settings.cubic = ctx.Float("cubic_coeff_a", -0.75F);
  settings.exclude_outside = ctx.Int("exclude_outside", 0) != 0;
  settings.antialias = ctx.opset >= 18 && ctx.Int("antialias", 0) != 0;
  if (settings.antialias && c->second == ResizeCoordinates::kTfCropAndResize)
    return ctx.Error("antialias with tf_crop_and_resize is not supported; export it without antialias");
  return settings;
}

// Where the scales stand: an attribute, input 1 (Resize to opset 10, Upsample), or input 2.
absl::StatusOr<std::vector<float>> ReadScales(const StepContext& ctx, Infos in) {
  if (ctx.step.op() == "Upsample" && ctx.opset < 9) {
    const proto::Attribute* scales = ctx.Find("scales");
    if (scales == nullptr) return ctx.Error("wants the attribute `scales`");
    const auto& values = scales->floats().values();
    return std::vector<float>(values.begin(), values.end());
  }
  const std::size_t index = ctx.step.op() == "Upsample" || ctx.opset < 11 ? 1 : 2;
  if (!Present(in, index)) return std::vector<float>();
  return RequireFloats(ctx, in, index, "scales");
}

// The axes that scales, sizes and the region name: all of them, or from opset 18 on those of the attribute.
absl::StatusOr<Shape> ResizedAxes(const StepContext& ctx, std::size_t rank) {
  Shape axes = ctx.opset < 18 ? Shape() : ctx.Ints("axes");
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  TROUPE_RETURN_IF_ERROR(NormalizeAxes(ctx, axes, rank).status());
  for (std::int64_t& axis : axes) axis += axis < 0 ? static_cast<std::int64_t>(rank) : 0;
  return axes;
}

// One factor for all axes, so that the result fits into the sizes or covers them (opset 18); 0: each axis its own.
absl::StatusOr<double> CommonScale(const StepContext& ctx, const Shape& shape, const Shape& axes,
                                   const Shape& sizes) {
  const std::string policy = ctx.Text("keep_aspect_ratio_policy", "stretch");
  if (ctx.opset < 18 || policy == "stretch") return 0;
  if (policy != "not_larger" && policy != "not_smaller") {
    return ctx.Error(absl::StrCat("unknown keep_aspect_ratio_policy '", policy, "'"));
  }
  double common = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t dim = shape[static_cast<std::size_t>(axes[i])];
    if (dim == 0) return ctx.Error("there is nothing to resize");
    const double scale = static_cast<double>(sizes[i]) / static_cast<double>(dim);
    const bool chosen = policy == "not_larger" ? scale < common : scale > common;
    if (i == 0 || chosen) common = scale;
  }
  return common;
}

absl::Status ReadSizes(const StepContext& ctx, Infos in, const Shape& axes, Target& target) {
  TROUPE_ASSIGN_OR_RETURN(const Shape sizes, RequireInts(ctx, in, 3, "sizes"));
  if (sizes.size() != axes.size()) return ctx.Error("wants one size for each dimension");
  TROUPE_ASSIGN_OR_RETURN(const double common, CommonScale(ctx, in[0].shape, axes, sizes));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (sizes[i] < 0) return ctx.Error("a size is negative");
    const auto axis = static_cast<std::size_t>(axes[i]);
    const auto dim = static_cast<double>(in[0].shape[axis]);
    const double length = common > 0 ? std::floor(common * dim + 0.5) : static_cast<double>(sizes[i]);
    if (!(length < 0x1p40)) return ctx.Error(absl::StrCat("size ", sizes[i]));
    target.shape[axis] = static_cast<std::int64_t>(length);
    target.scales[axis] = common > 0 ? common : (dim == 0 ? 1.0 : length / dim);
  }
  return absl::OkStatus();
}

absl::StatusOr<Target> ReadTarget(const StepContext& ctx, Infos in) {
  const Shape& shape = in[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const std::vector<float> scales, ReadScales(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(const Shape axes, ResizedAxes(ctx, shape.size()));
  Target target{shape, std::vector<double>(shape.size(), 1.0)};
  if (scales.empty()) {
    if (!Present(in, 3)) return ctx.Error("wants scales or sizes");
    TROUPE_RETURN_IF_ERROR(ReadSizes(ctx, in, axes, target));
    return target;
  }
  if (scales.size() != axes.size()) return ctx.Error("wants one scale for each dimension");
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    const double length = std::floor(static_cast<double>(shape[axis]) * scales[i]);
    if (!(scales[i] > 0) || !(length < 0x1p40)) return ctx.Error(absl::StrCat("scale ", scales[i]));
    target.shape[axis] = static_cast<std::int64_t>(length);
    target.scales[axis] = scales[i];
  }
  return target;
}

Inferred InferResize(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 4, kFixedTypes));
  TROUPE_ASSIGN_OR_RETURN(const ResizeSettings settings, ReadSettings(ctx));
  if (settings.mode != ResizeMode::kNearest && in[0].type == proto::BOOL) {
    return ctx.Error("truth values have nothing between them");
  }
  TROUPE_ASSIGN_OR_RETURN(Target target, ReadTarget(ctx, in));
  for (std::size_t i = 0; i < target.shape.size(); ++i) {
    if (in[0].shape[i] == 0 && target.shape[i] != 0) return ctx.Error("there is nothing to resize");
    if (target.shape[i] > kMaxTabulated) return ctx.Error("a resized dimension is longer than 2^24");
    const std::int64_t taps = TapCount(settings, target.scales[i]);
    if (settings.antialias && taps > kMaxTabulated / std::max<std::int64_t>(target.shape[i], 1))
      return ctx.Error("antialias over a dimension wants more than 2^24 weights");
  }
  return OneValue(ctx, in[0].type, std::move(target.shape));
}

}  // namespace

absl::StatusOr<std::vector<ResizeTaps>> ReadResizeTaps(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const ResizeSettings settings, ReadSettings(ctx));
  TROUPE_ASSIGN_OR_RETURN(const Target target, ReadTarget(ctx, in));
  const std::size_t rank = in[0].shape.size();
  std::vector<float> starts(rank, 0.0F);
  std::vector<float> ends(rank, 1.0F);  // of the region, as parts of each dimension
  if (settings.coordinates == ResizeCoordinates::kTfCropAndResize) {
    if (!Present(in, 1)) return ctx.Error("tf_crop_and_resize wants a region (input 1)");
    TROUPE_ASSIGN_OR_RETURN(const std::vector<float> roi, RequireFloats(ctx, in, 1, "roi"));
    TROUPE_ASSIGN_OR_RETURN(const Shape axes, ResizedAxes(ctx, rank));
    if (roi.size() != 2 * axes.size())
      return ctx.Error("the region wants a start and an end for each dimension");
    for (std::size_t i = 0; i < axes.size(); ++i) {
      starts[static_cast<std::size_t>(axes[i])] = roi[i];
      ends[static_cast<std::size_t>(axes[i])] = roi[axes.size() + i];
    }
  }
  std::vector<ResizeTaps> taps;
  for (std::size_t i = 0; i < rank; ++i) {
    taps.push_back(MakeTaps(settings, in[0].shape[i], target.shape[i], target.scales[i], starts[i], ends[i]));
  }
  return taps;
}

namespace {

// One axis of a tensor seen as [outer, axis, inner].
struct Pass {
  std::int64_t outer;
  std::int64_t inner;
  ResizeTaps taps;
};

template <class T>
void RunPass(const Pass& pass, const T* from, T* to, T extrapolation) {
  const ResizeTaps& taps = pass.taps;
  ParallelRanges(pass.outer * taps.out, pass.inner * taps.count, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t place = row % taps.out;
      const T* base = from + row / taps.out * taps.in * pass.inner;
      T* target = to + row * pass.inner;
      const auto tap = static_cast<std::size_t>(place * taps.count);
      if (taps.outside[static_cast<std::size_t>(place)]) {
        std::fill_n(target, pass.inner, extrapolation);
        continue;
      }
      const T* a = base + taps.index[tap] * pass.inner;
      const T wa = taps.weight[tap];
      if (taps.count == 2) {
        const T* b = base + taps.index[tap + 1] * pass.inner;
        const T wb = taps.weight[tap + 1];
        for (std::int64_t i = 0; i < pass.inner; ++i) target[i] = wa * a[i] + wb * b[i];
        continue;
      }
      for (std::int64_t i = 0; i < pass.inner; ++i) target[i] = wa * a[i];
      for (std::size_t t = 1; t < static_cast<std::size_t>(taps.count); ++t) {
        const T* b = base + taps.index[tap + t] * pass.inner;
        const T wb = taps.weight[tap + t];
        for (std::int64_t i = 0; i < pass.inner; ++i) target[i] += wb * b[i];
      }
    }
  });
}

Made MakeInterpolation(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<ResizeTaps> taps, ReadResizeTaps(ctx, in));
  std::vector<Pass> passes;
  Shape shape = in[0].shape;
  std::int64_t largest = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (taps[d].identity()) continue;
    Pass pass{Product(std::span(shape).first(d)), Product(std::span(shape).subspan(d + 1)),
              std::move(taps[d])};
    shape[d] = pass.taps.out;
    auto count = CountElements(shape);
    if (!count.ok()) return ctx.Error(std::string(count.status().message()));
    largest = std::max(largest, *count);
    passes.push_back(std::move(pass));
  }
  const std::size_t size = ElementSize(in[0].type);
  const Bytes half =
      passes.size() < 2 ? Bytes(0) : AlignUp(Bytes(static_cast<std::uint64_t>(largest) * size), Bytes(64));
  const float extrapolation = ctx.Float("extrapolation_value", 0.0F);
  return MakeKernel(
      [passes, half, extrapolation](In in, Out out, std::byte* scratch) {
        if (passes.empty()) CopyBytes(out[0].data, in[0].data, BytesOf(out[0]));
        const std::byte* from = in[0].data;
        for (std::size_t i = 0; i < passes.size(); ++i) {
          std::byte* to = i + 1 == passes.size() ? out[0].data : scratch + (i % 2) * half.count();
          if (in[0].type == proto::FP64) {
            RunPass<double>(passes[i], reinterpret_cast<const double*>(from), reinterpret_cast<double*>(to),
                            extrapolation);
          } else {
            RunPass<float>(passes[i], reinterpret_cast<const float*>(from), reinterpret_cast<float*>(to),
                           extrapolation);
          }
          from = to;
        }
        return absl::OkStatus();
      },
      Bytes(2 * half.count()));
}

// Nearest copies elements, whatever they mean; the last axis by index, the others by rows of it.
Made MakeNearest(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<ResizeTaps> taps, ReadResizeTaps(ctx, in));
  const std::size_t rank = taps.size();
  Shape in_strides = RowMajorStrides(in[0].shape);
  std::array<std::byte, 8> extrapolated{};
  const float value = ctx.Float("extrapolation_value", 0.0F);
  ConvertElements(proto::FP32, reinterpret_cast<const std::byte*>(&value), in[0].type, extrapolated.data(),
                  1);
  return MakeKernel([=](In in, Out out, std::byte*) {
    const std::int64_t columns = rank == 0 ? 1 : out[0].shape.back();
    const std::int64_t rows = columns == 0 ? 0 : Elements(out[0]) / columns;
    ForElementSize(ElementSize(in[0].type), [&](auto zero) {
      using U = decltype(zero);
      U outside;
      std::memcpy(&outside, extrapolated.data(), sizeof(U));
      ParallelRanges(rows, columns, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
          std::int64_t rest = row;
          const U* from = Data<U>(in[0]);
          bool gone = false;
          for (std::size_t d = rank == 0 ? 0 : rank - 1; d-- > 0;) {
            const auto place = static_cast<std::size_t>(rest % taps[d].out);
            rest /= taps[d].out;
            from += taps[d].index[place] * in_strides[d];
            gone = gone || taps[d].outside[place];
          }
          U* to = MutableData<U>(out[0]) + row * columns;
          for (std::int64_t c = 0; c < columns; ++c) {
            const auto place = static_cast<std::size_t>(c);
            to[c] = gone || (rank > 0 && taps[rank - 1].outside[place])
                        ? outside
                        : from[rank == 0 ? 0 : taps[rank - 1].index[place]];
          }
        }
      });
    });
    return absl::OkStatus();
  });
}

Made MakeResize(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const ResizeSettings settings, ReadSettings(ctx));
  if (out[0].elements() == 0) {
    return MakeKernel([](In, Out, std::byte*) { return absl::OkStatus(); });
  }
  if (settings.mode == ResizeMode::kNearest) return MakeNearest(ctx, in, out);
  const proto::DataType type = in[0].type == proto::FP64 ? proto::FP64 : proto::FP32;
  std::vector<proto::DataType> types;
  for (const ValueInfo& info : in) types.push_back(info.type);
  types[0] = type;
  return MakeConverted(&MakeInterpolation, ctx, in, out, types, std::array{type});
}

constexpr Operator kOperators[] = {
    {.name = "Resize",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferResize,
     .make = &MakeResize,
     .types = kFixedTypes},
    {.name = "Upsample",
     .min_opset = 7,
     .max_opset = 9,
     .infer = &InferResize,
     .make = &MakeResize,
     .types = kFixedTypes},
};

}  // namespace

std::span<const Operator> ResizeOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
