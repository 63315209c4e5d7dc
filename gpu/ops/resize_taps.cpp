#include "gpu/ops/resize_taps.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe::gpu {
namespace {

double SourceOf(const ResizeSettings& settings, std::int64_t place, std::int64_t in, std::int64_t out,
                double scale, double start, double end) {
  const auto x = static_cast<double>(place);
  const auto last = static_cast<double>(in - 1);
  switch (settings.coordinates) {
    case ResizeCoordinates::kHalfPixel:
      return (x + 0.5) / scale - 0.5;
    case ResizeCoordinates::kHalfPixelSymmetric: {
      // What rounding took from the length is left out at both ends alike.
      const double length = scale * static_cast<double>(in);
      const double offset = static_cast<double>(in) / 2 * (1 - static_cast<double>(out) / length);
      return offset + (x + 0.5) / scale - 0.5;
    }
    case ResizeCoordinates::kPytorchHalfPixel:
      return out > 1 ? (x + 0.5) / scale - 0.5 : 0.0;
    case ResizeCoordinates::kAlignCorners: {
      // The standard's reference takes the length before it was rounded down.
      const double length = scale * static_cast<double>(in);
      return length == 1.0 || out == 1 ? 0.0 : x * last / (length - 1.0);
    }
    case ResizeCoordinates::kAsymmetric:
      return x / scale;
    case ResizeCoordinates::kTfHalfPixelForNn:
      return (x + 0.5) / scale;
    case ResizeCoordinates::kTfCropAndResize:
      return out > 1 ? start * last + x * (end - start) * last / static_cast<double>(out - 1)
                     : 0.5 * (start + end) * last;
  }
  return 0.0;
}

double Round(ResizeRounding rounding, double x) {
  switch (rounding) {
    case ResizeRounding::kPreferFloor:
      return std::ceil(x - 0.5);
    case ResizeRounding::kPreferCeil:
      return std::floor(x + 0.5);
    case ResizeRounding::kFloor:
      return std::floor(x);
    case ResizeRounding::kCeil:
      return std::ceil(x);
  }
  return x;
}

// The weight of a place at distance `d`.
double CubicWeight(double d, double a) {
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0.0;
}

// Places up to two (cubic) or one (linear) steps of the output away count, and the weights add up to 1. Outside of
// the input its last element repeats, or nothing counts.
void AddAntialiased(const ResizeSettings& settings, double x, double scale, ResizeTaps& taps) {
  const double first = std::floor(x) - static_cast<double>(taps.count / 2 - 1);
  const auto last = static_cast<double>(taps.in - 1);
  std::vector<double> weights(static_cast<std::size_t>(taps.count));
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double at = first + static_cast<double>(i);
    const double d = std::abs(at - x) * std::min(scale, 1.0);
    const double weight =
        settings.mode == ResizeMode::kCubic ? CubicWeight(d, settings.cubic) : std::max(0.0, 1 - d);
    weights[i] = settings.exclude_outside && (at < 0 || at > last) ? 0.0 : weight;
    sum += weights[i];
    taps.index.push_back(static_cast<std::int64_t>(std::clamp(at, 0.0, last)));
  }
  for (const double weight : weights)
    taps.weight.push_back(static_cast<float>(sum != 0 ? weight / sum : weight));
}

}  // namespace

bool ResizeTaps::identity() const {
  if (in != out) return false;
  for (std::int64_t i = 0; i < out; ++i) {
    if (outside[static_cast<std::size_t>(i)]) return false;
    for (std::int64_t t = 0; t < count; ++t) {
      const auto at = static_cast<std::size_t>(i * count + t);
      if (weight[at] != (index[at] == i ? 1.0F : 0.0F)) return false;
    }
  }
  return true;
}

std::int64_t TapCount(const ResizeSettings& settings, double scale) {
  if (settings.mode == ResizeMode::kNearest) return 1;
  const std::int64_t plain = settings.mode == ResizeMode::kLinear ? 2 : 4;
  if (!settings.antialias || !(scale < 1)) return plain;
  // Half of them on either side. A scale below 2^-40 makes a length of 0.
  return 2 * static_cast<std::int64_t>(std::ceil(static_cast<double>(plain / 2) / std::max(scale, 0x1p-40)));
}

ResizeTaps MakeTaps(const ResizeSettings& settings, std::int64_t in, std::int64_t out, double scale,
                    double roi_start, double roi_end) {
  ResizeTaps taps;
  taps.in = in;
  taps.out = out;
  taps.count = TapCount(settings, scale);
  const auto last = static_cast<double>(in - 1);
  for (std::int64_t place = 0; place < out; ++place) {
    double x = SourceOf(settings, place, in, out, scale, roi_start, roi_end);
    // A hostile scale may give anything; an index must come of it that a cast can hold.
    if (!(x > -1e15 && x < 1e15)) x = 0.0;
    taps.outside.push_back(settings.coordinates == ResizeCoordinates::kTfCropAndResize &&
                           (x < 0 || x > last));
    if (settings.mode == ResizeMode::kNearest) {
      taps.index.push_back(static_cast<std::int64_t>(std::clamp(Round(settings.rounding, x), 0.0, last)));
      taps.weight.push_back(1.0F);
      continue;
    }
    if (settings.antialias && scale < 1) {
      AddAntialiased(settings, x, scale, taps);
      continue;
    }
    if (settings.mode == ResizeMode::kLinear) x = std::clamp(x, 0.0, last);
    const double base = std::floor(x);
    const double t = x - base;
    std::array<double, 4> weights = {1 - t, t, 0, 0};
    double first = base;
    if (settings.mode == ResizeMode::kCubic) {
      for (int i = 0; i < 4; ++i)
        weights[static_cast<std::size_t>(i)] = CubicWeight(std::abs(t + 1 - i), settings.cubic);
      first = base - 1;
      double sum = 0;
      for (int i = 0; i < 4 && settings.exclude_outside; ++i) {
        if (first + i < 0 || first + i > last) weights[static_cast<std::size_t>(i)] = 0;
        sum += weights[static_cast<std::size_t>(i)];
      }
      for (double& w : weights) w = settings.exclude_outside && sum != 0 ? w / sum : w;
    }
    for (std::int64_t i = 0; i < taps.count; ++i) {
      taps.index.push_back(static_cast<std::int64_t>(std::clamp(first + static_cast<double>(i), 0.0, last)));
      taps.weight.push_back(static_cast<float>(weights[static_cast<std::size_t>(i)]));
    }
  }
  return taps;
}

}  // namespace troupe::gpu
