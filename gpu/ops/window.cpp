#include "gpu/ops/window.hpp"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

// Beyond this no window makes sense, and products of two such numbers still fit.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;

// An integer list attribute with one entry per dimension, each in [least, kMaxExtent].
absl::StatusOr<Shape> ReadExtents(const StepContext& ctx, std::string_view name, std::size_t count,
                                  std::int64_t fallback, std::int64_t least) {
  Shape values = ctx.Ints(name);
  if (values.empty()) values.assign(count, fallback);
  if (values.size() != count) {
    return ctx.Error(absl::StrCat(std::string(name), " has ", values.size(), " entries, expected ", count));
  }
  for (std::int64_t value : values) {
    if (value < least || value > kMaxExtent) {
      return ctx.Error(absl::StrCat(std::string(name), " ", FormatShape(values), " has an entry outside [",
                                    least, ",2^30]"));
    }
  }
  return values;
}

absl::Status CheckSpatial(const StepContext& ctx, std::span<const std::int64_t> spatial,
                          const Shape& kernel) {
  for (std::size_t i = 0; i < spatial.size(); ++i) {
    if (spatial[i] < 1 || spatial[i] > kMaxExtent) {
      return ctx.Error(
          absl::StrCat("spatial shape ", FormatShape(spatial), " has an entry outside [1,2^30]"));
    }
    if (kernel[i] < 1 || kernel[i] > kMaxExtent) {
      return ctx.Error(absl::StrCat("kernel ", FormatShape(kernel), " has an entry outside [1,2^30]"));
    }
  }
  return absl::OkStatus();
}

std::int64_t CeilDivide(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

absl::Status ReadCommon(const StepContext& ctx, std::span<const std::int64_t> spatial, Window& window) {
  const std::size_t n = spatial.size();
  TROUPE_RETURN_IF_ERROR(CheckSpatial(ctx, spatial, window.kernel));
  TROUPE_ASSIGN_OR_RETURN(window.strides, ReadExtents(ctx, "strides", n, 1, 1));
  TROUPE_ASSIGN_OR_RETURN(window.dilations, ReadExtents(ctx, "dilations", n, 1, 1));
  TROUPE_ASSIGN_OR_RETURN(const Shape pads, ReadExtents(ctx, "pads", n * 2, 0, 0));
  window.begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(n));
  window.end.assign(pads.begin() + static_cast<std::ptrdiff_t>(n), pads.end());
  for (std::size_t i = 0; i < n; ++i) {
    if (window.kernel[i] > 1 && window.dilations[i] > kMaxExtent / window.kernel[i]) {
      return ctx.Error("the dilated kernel is larger than 2^30");
    }
  }
  window.out.resize(n);
  return absl::OkStatus();
}

std::int64_t Reach(const Window& window, std::size_t i) {
  return (window.kernel[i] - 1) * window.dilations[i] + 1;
}

absl::StatusOr<std::string> ReadAutoPad(const StepContext& ctx) {
  std::string mode = ctx.Text("auto_pad", "NOTSET");
  if (mode != "NOTSET" && mode != "" && mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER") {
    return ctx.Error(absl::StrCat("auto_pad '", mode, "' is none of NOTSET, VALID, SAME_UPPER, SAME_LOWER"));
  }
  return mode;
}

void SplitPadding(const std::string& mode, std::int64_t total, std::int64_t& begin, std::int64_t& end) {
  begin = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
  end = total - begin;
}

}  // namespace

absl::StatusOr<Window> ReadWindow(const StepContext& ctx, std::span<const std::int64_t> spatial,
                                  Shape kernel) {
  Window window;
  window.kernel = std::move(kernel);
  window.ceil = ctx.Int("ceil_mode", 0) != 0;
  TROUPE_RETURN_IF_ERROR(ReadCommon(ctx, spatial, window));
  TROUPE_ASSIGN_OR_RETURN(const std::string mode, ReadAutoPad(ctx));
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  for (std::size_t i = 0; i < spatial.size(); ++i) {
    const std::int64_t stride = window.strides[i];
    if (same) {
      window.out[i] = CeilDivide(spatial[i], stride);
      const std::int64_t total =
          std::max<std::int64_t>(0, (window.out[i] - 1) * stride + Reach(window, i) - spatial[i]);
      SplitPadding(mode, total, window.begin[i], window.end[i]);
      continue;
    }
    if (mode == "VALID") window.begin[i] = window.end[i] = 0;
    const std::int64_t room = spatial[i] + window.begin[i] + window.end[i] - Reach(window, i);
    if (room < 0) {
      return ctx.Error(absl::StrCat("the window ", FormatShape(window.kernel), " with dilations ",
                                    FormatShape(window.dilations), " does not fit into the padded input ",
                                    FormatShape(spatial)));
    }
    window.out[i] = (window.ceil ? CeilDivide(room, stride) : room / stride) + 1;
    // A window that would begin in the padding behind the input is left out.
    if (window.ceil && (window.out[i] - 1) * stride >= spatial[i] + window.begin[i]) --window.out[i];
  }
  return window;
}

absl::StatusOr<Window> ReadTransposedWindow(const StepContext& ctx, std::span<const std::int64_t> spatial,
                                            Shape kernel) {
  Window window;
  window.kernel = std::move(kernel);
  const std::size_t n = spatial.size();
  TROUPE_RETURN_IF_ERROR(ReadCommon(ctx, spatial, window));
  TROUPE_ASSIGN_OR_RETURN(const std::string mode, ReadAutoPad(ctx));
  TROUPE_ASSIGN_OR_RETURN(const Shape extra, ReadExtents(ctx, "output_padding", n, 0, 0));
  Shape wanted = ctx.Ints("output_shape");
  if (wanted.size() > n) wanted.erase(wanted.begin(), wanted.end() - static_cast<std::ptrdiff_t>(n));
  if (!wanted.empty() && wanted.size() != n) return ctx.Error("output_shape has too few entries");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  for (std::size_t i = 0; i < n; ++i) {
    if (spatial[i] > kMaxExtent / window.strides[i]) return ctx.Error("the output is larger than 2^30");
    const std::int64_t full = (spatial[i] - 1) * window.strides[i] + extra[i] + Reach(window, i);
    if (!wanted.empty() || same) {
      window.out[i] = wanted.empty() ? spatial[i] * window.strides[i] : wanted[i];
      const std::int64_t total = full - window.out[i];
      // A larger output than the windows reach is zero there: padding at the end becomes negative.
      window.begin[i] = std::max<std::int64_t>(0, mode == "SAME_UPPER" ? total / 2 : total - total / 2);
      window.end[i] = total - window.begin[i];
    } else {
      if (mode == "VALID") window.begin[i] = window.end[i] = 0;
      window.out[i] = full - window.begin[i] - window.end[i];
    }
    if (window.out[i] < 1 || window.out[i] > kMaxExtent) {
      return ctx.Error(absl::StrCat("output size ", window.out[i], " is outside [1,2^30]"));
    }
  }
  return window;
}

Shape ExactEndPadding(const Window& window, std::span<const std::int64_t> spatial) {
  Shape end(spatial.size());
  for (std::size_t i = 0; i < spatial.size(); ++i) {
    end[i] = (window.out[i] - 1) * window.strides[i] + Reach(window, i) - spatial[i] - window.begin[i];
  }
  return end;
}

}  // namespace troupe::gpu
