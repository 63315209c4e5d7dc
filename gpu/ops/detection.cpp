// NonMaxSuppression and RoiAlign.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/frame_pool.hpp"
#include "gpu/ops/indices.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

// --- NonMaxSuppression: [selected, 3] of (batch, class, box)
// -------------------------------------------------------------

Inferred InferNms(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 5, TypesOf({proto::FP32})));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, TypesOf({proto::FP32})));
  const Shape& boxes = in[0].shape;
  const Shape& scores = in[1].shape;
  if (boxes.size() != 3 || scores.size() != 3 || boxes[2] != 4 || boxes[0] != scores[0] ||
      boxes[1] != scores[2]) {
    return ctx.Error(absl::StrCat("wants boxes [B,N,4] and scores [B,C,N], has ", FormatShape(boxes), " and ",
                                  FormatShape(scores)));
  }
  std::int64_t most = boxes[1];
  for (std::size_t i = 2; i < in.size(); ++i) {
    if (in[i].absent()) continue;
    TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, TypesOf({i == 2 ? proto::INT64 : proto::FP32})));
    if (in[i].elements() != 1) return ctx.Error(absl::StrCat("input ", i, " must be one number"));
  }
  if (Present(in, 2) && in[2].constant != nullptr) {
    most = std::clamp<std::int64_t>(IntAt(in[2].type, in[2].constant, 0), 0, most);
  } else if (!Present(in, 2)) {
    most = 0;
  }
  auto count = CountElements(Shape{boxes[0], scores[1], most, 3});
  if (!count.ok()) return ctx.Error(std::string(count.status().message()));
  return OneValue(ctx, proto::INT64, {*count / 3, 3}, true);
}

struct Box {
  float top, left, bottom, right;
};

// Corners may come in either order.
Box ReadBox(const float* data, bool center) {
  if (center) {
    return {data[1] - data[3] / 2, data[0] - data[2] / 2, data[1] + data[3] / 2, data[0] + data[2] / 2};
  }
  return {std::min(data[0], data[2]), std::min(data[1], data[3]), std::max(data[0], data[2]),
          std::max(data[1], data[3])};
}

bool Overlaps(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (!(height > 0) || !(width > 0)) return false;
  const float area_a = (a.bottom - a.top) * (a.right - a.left);
  const float area_b = (b.bottom - b.top) * (b.right - b.left);
  const float shared = height * width;
  return shared / (area_a + area_b - shared) > threshold;
}

class NmsKernel final : public Kernel {
 public:
  NmsKernel(std::int64_t boxes, bool center) : boxes_(static_cast<std::size_t>(boxes)), center_(center) {}

  absl::Status Run(In in, Out out, std::byte*) const override {
    const std::int64_t classes = in[1].shape[1];
    const std::int64_t boxes = in[0].shape[1];
    const std::int64_t most = Present(in, 2) ? std::max<std::int64_t>(*Data<std::int64_t>(in[2]), 0) : 0;
    const float overlap = Present(in, 3) ? *Data<float>(in[3]) : 0.0F;
    const float least = Present(in, 4) ? *Data<float>(in[4]) : -std::numeric_limits<float>::infinity();
    const auto room = static_cast<std::int64_t>(out[0].shape[0]);
    auto* selected = MutableData<std::int64_t>(out[0]);
    std::int64_t found = 0;
    const auto frame = frames_.Take([this] { return std::make_unique<Frame>(boxes_); });
    for (std::int64_t b = 0; b < in[0].shape[0]; ++b) {
      for (std::int64_t c = 0; c < classes; ++c) {
        Select(Data<float>(in[0]) + b * boxes * 4, Data<float>(in[1]) + (b * classes + c) * boxes, boxes,
               std::min(most, room - found), overlap, least, *frame);
        for (std::int64_t box : frame->kept) {
          selected[0] = b;
          selected[1] = c;
          selected[2] = box;
          selected += 3;
        }
        found += static_cast<std::int64_t>(frame->kept.size());
      }
    }
    out[0].shape = {found, 3};
    return absl::OkStatus();
  }

 private:
  struct Frame {
    explicit Frame(std::size_t boxes) : order(boxes) { kept.reserve(boxes); }
    std::vector<std::int64_t> order;
    std::vector<std::int64_t> kept;
  };

  void Select(const float* boxes, const float* scores, std::int64_t count, std::int64_t most, float overlap,
              float least, Frame& frame) const {
    auto& [order, kept] = frame;
    kept.clear();
    std::size_t candidates = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (scores[i] > least) order[candidates++] = i;  // never a NaN: the order below stays strict
    }
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(candidates);
    std::sort(order.begin(), end, [scores](std::int64_t a, std::int64_t b) {
      return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    });
    for (auto it = order.begin(); it != end && static_cast<std::int64_t>(kept.size()) < most; ++it) {
      const Box box = ReadBox(boxes + *it * 4, center_);
      const bool hidden = std::any_of(kept.begin(), kept.end(), [&](std::int64_t other) {
        return Overlaps(box, ReadBox(boxes + other * 4, center_), overlap);
      });
      if (!hidden) kept.push_back(*it);
    }
  }

  std::size_t boxes_;
  bool center_;
  mutable FramePool<Frame> frames_;
};

Made MakeNms(const StepContext& ctx, Infos in, Infos) {
  return std::unique_ptr<Kernel>(
      std::make_unique<NmsKernel>(in[0].shape[1], ctx.Int("center_point_box", 0) != 0));
}

// --- RoiAlign
// -----------------------------------------------------------------------------------------------------

struct RoiSettings {
  bool average = true;
  bool half_pixel = true;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t sampling = 0;
  float scale = 1.0F;
};

absl::StatusOr<RoiSettings> ReadRoiSettings(const StepContext& ctx) {
  RoiSettings s;
  const std::string mode = ctx.Text("mode", "avg");
  if (mode != "avg" && mode != "max") return ctx.Error(absl::StrCat("unknown mode '", mode, "'"));
  s.average = mode == "avg";
  const std::string coordinates =
      ctx.Text("coordinate_transformation_mode", ctx.opset < 16 ? "output_half_pixel" : "half_pixel");
  if (coordinates != "half_pixel" && coordinates != "output_half_pixel") {
    return ctx.Error(absl::StrCat("unknown coordinates '", coordinates, "'"));
  }
  s.half_pixel = coordinates == "half_pixel";
  s.height = ctx.Int("output_height", 1);
  s.width = ctx.Int("output_width", 1);
  s.sampling = ctx.Int("sampling_ratio", 0);
  s.scale = ctx.Float("spatial_scale", 1.0F);
  if (s.height < 1 || s.width < 1 || s.height > 65536 || s.width > 65536 || s.sampling < 0 ||
      s.sampling > 1024) {
    return ctx.Error("output_height, output_width or sampling_ratio is out of range");
  }
  return s;
}

Inferred InferRoiAlign(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kFloatTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 2, TypesOf({proto::INT64})));
  const std::int64_t regions = in[1].shape.empty() ? 0 : in[1].shape[0];
  if (in[1].type != in[0].type || in[0].shape.size() != 4 || in[1].shape != Shape{regions, 4} ||
      in[2].shape != Shape{regions} || in[0].shape[2] == 0 || in[0].shape[3] == 0) {
    return ctx.Error("wants [N,C,H,W], regions [R,4] of the same type and batch indices [R]");
  }
  TROUPE_ASSIGN_OR_RETURN(const RoiSettings s, ReadRoiSettings(ctx));
  return OneValue(ctx, in[0].type, {regions, in[0].shape[1], s.height, s.width});
}

// Bilinear sample; 0 beyond one element outside.
float Sample(const float* plane, std::int64_t height, std::int64_t width, float y, float x) {
  if (!(y >= -1.0F && y <= static_cast<float>(height) && x >= -1.0F && x <= static_cast<float>(width)))
    return 0.0F;
  const auto place = [](float at, std::int64_t dim, std::int64_t& low, std::int64_t& high) {
    at = std::max(at, 0.0F);
    low = std::min(static_cast<std::int64_t>(at), dim - 1);
    high = std::min(low + 1, dim - 1);
    return low == dim - 1 ? 0.0F : at - static_cast<float>(low);
  };
  std::int64_t top, bottom, left, right;
  const float dy = place(y, height, top, bottom);
  const float dx = place(x, width, left, right);
  return (1 - dy) * ((1 - dx) * plane[top * width + left] + dx * plane[top * width + right]) +
         dy * ((1 - dx) * plane[bottom * width + left] + dx * plane[bottom * width + right]);
}

// Samples per output cell along one axis. No region that lies in the image needs more than the image has
// elements.
std::int64_t Grid(std::int64_t sampling, float length, std::int64_t cells, std::int64_t dim) {
  if (sampling > 0) return sampling;
  const float want = std::ceil(length / static_cast<float>(cells));
  if (!(want >= 1.0F)) return 1;
  return want < static_cast<float>(dim + 2) ? static_cast<std::int64_t>(want) : dim + 2;
}

void AlignRegion(const RoiSettings& s, const float* roi, const float* image, const Shape& shape, float* out) {
  const std::int64_t height = shape[2];
  const std::int64_t width = shape[3];
  const float offset = s.half_pixel ? 0.5F : 0.0F;
  const float left = roi[0] * s.scale - offset;
  const float top = roi[1] * s.scale - offset;
  float roi_width = roi[2] * s.scale - offset - left;
  float roi_height = roi[3] * s.scale - offset - top;
  if (!s.half_pixel) {
    roi_width = std::max(roi_width, 1.0F);
    roi_height = std::max(roi_height, 1.0F);
  }
  const float cell_height = roi_height / static_cast<float>(s.height);
  const float cell_width = roi_width / static_cast<float>(s.width);
  const std::int64_t rows = Grid(s.sampling, roi_height, s.height, height);
  const std::int64_t columns = Grid(s.sampling, roi_width, s.width, width);
  for (std::int64_t c = 0; c < shape[1]; ++c) {
    const float* plane = image + c * height * width;
    for (std::int64_t i = 0; i < s.height * s.width; ++i) {
      const float y0 = top + static_cast<float>(i / s.width) * cell_height;
      const float x0 = left + static_cast<float>(i % s.width) * cell_width;
      float sum = 0;
      float largest = -std::numeric_limits<float>::infinity();
      for (std::int64_t r = 0; r < rows; ++r) {
        const float y = y0 + (static_cast<float>(r) + 0.5F) * cell_height / static_cast<float>(rows);
        for (std::int64_t k = 0; k < columns; ++k) {
          const float x = x0 + (static_cast<float>(k) + 0.5F) * cell_width / static_cast<float>(columns);
          const float value = Sample(plane, height, width, y, x);
          sum += value;
          largest = std::max(largest, value);
        }
      }
      *out++ = s.average ? sum / static_cast<float>(rows * columns) : largest;
    }
  }
}

Made MakeRoiAlignOf(const StepContext& ctx, Infos, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const RoiSettings s, ReadRoiSettings(ctx));
  return MakeKernel([s, step = ctx.step](In in, Out out, std::byte*) -> absl::Status {
    const Shape& shape = in[0].shape;
    const std::int64_t image = shape[1] * shape[2] * shape[3];
    const std::int64_t result = shape[1] * s.height * s.width;
    for (std::int64_t r = 0; r < in[1].shape[0]; ++r) {
      const std::int64_t batch = Data<std::int64_t>(in[2])[r];
      if (batch < 0 || batch >= shape[0]) return IndexError(step, batch, shape[0]);
      AlignRegion(s, Data<float>(in[1]) + r * 4, Data<float>(in[0]) + batch * image, shape,
                  MutableData<float>(out[0]) + r * result);
    }
    return absl::OkStatus();
  });
}

Made MakeRoiAlign(const StepContext& ctx, Infos in, Infos out) {
  return MakeConverted(&MakeRoiAlignOf, ctx, in, out, std::array{proto::FP32, proto::FP32, proto::INT64},
                       std::array{proto::FP32});
}

constexpr Operator kOperators[] = {
    {.name = "NonMaxSuppression",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferNms,
     .make = &MakeNms,
     .types = TypesOf({proto::FP32}),
     .sizes_output = true},
    {.name = "RoiAlign",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferRoiAlign,
     .make = &MakeRoiAlign,
     .types = kFloatTypes},
};

}  // namespace

std::span<const Operator> DetectionOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
