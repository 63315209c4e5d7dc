#include "gpu/ops/pooling_loops.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

constexpr std::size_t kSpatial = 3;
using Extents = std::array<std::int64_t, kSpatial>;

// Every pooling as one of three spatial dimensions.
struct Geometry {
  Extents size{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, begin{0, 0, 0},
      end{0, 0, 0};
  std::int64_t planes = 0;
};

Geometry GeometryOf(const Pooling& pooling) {
  Geometry g;
  const Window& w = pooling.window;
  const std::size_t n = w.kernel.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t d = kSpatial - n + i;
    g.size[d] = pooling.source[2 + i];
    g.out[d] = w.out[i];
    g.kernel[d] = w.kernel[i];
    g.stride[d] = w.strides[i];
    g.dilation[d] = w.dilations[i];
    g.begin[d] = w.begin[i];
    g.end[d] = w.end[i];
  }
  g.planes = pooling.source[0] * pooling.source[1];
  return g;
}

// Taps of one window along one dimension that lie inside the input: [first, last), and how many lie inside
// the padded input (those are what count_include_pad counts).
struct Taps {
  std::int64_t first, last, counted;
};

Taps TapsAt(const Geometry& g, std::size_t d, std::int64_t o) {
  const std::int64_t start = o * g.stride[d] - g.begin[d];
  const std::int64_t step = g.dilation[d];
  const auto below = [&](std::int64_t limit) {  // taps at positions under `limit`
    return limit <= start ? std::int64_t{0} : std::min(g.kernel[d], (limit - start + step - 1) / step);
  };
  return {below(0), below(g.size[d]), below(g.size[d] + g.end[d])};
}

template <class T>
struct Reduction {
  PoolKind kind;
  std::int64_t p;
  T value;
  std::int64_t count = 0;
  std::int64_t index = 0;

  explicit Reduction(const Pooling& pooling)
      : kind(pooling.kind),
        p(pooling.p),
        value(kind == PoolKind::kMax ? std::numeric_limits<T>::lowest() : T(0)) {}

  void Add(T x, std::int64_t at) {
    if (kind == PoolKind::kAverage) {
      value += x;
    } else if (kind == PoolKind::kLp) {
      value += std::pow(std::abs(x), static_cast<T>(p));
    } else if (count == 0 || x > value) {
      value = x;
      index = at;
    }
    ++count;
  }
  [[nodiscard]] T Result(std::int64_t counted) const {
    if (kind == PoolKind::kAverage) return counted == 0 ? T(0) : value / static_cast<T>(counted);
    if (kind == PoolKind::kLp) return std::pow(value, T(1) / static_cast<T>(p));
    return value;
  }
};

template <class T>
void PoolWindow(const Pooling& pooling, const Geometry& g, const T* plane,
                const std::array<Taps, kSpatial>& taps, const Extents& o, Reduction<T>& reduction) {
  for (std::int64_t a = taps[0].first; a < taps[0].last; ++a) {
    const std::int64_t z = o[0] * g.stride[0] - g.begin[0] + a * g.dilation[0];
    for (std::int64_t b = taps[1].first; b < taps[1].last; ++b) {
      const std::int64_t y = o[1] * g.stride[1] - g.begin[1] + b * g.dilation[1];
      for (std::int64_t c = taps[2].first; c < taps[2].last; ++c) {
        const std::int64_t x = o[2] * g.stride[2] - g.begin[2] + c * g.dilation[2];
        const std::int64_t at = (z * g.size[1] + y) * g.size[2] + x;
        const std::int64_t told = pooling.column_major ? (x * g.size[1] + y) * g.size[0] + z : at;
        reduction.Add(plane[at], told);
      }
    }
  }
}

template <class T>
void PoolPlane(const Pooling& pooling, const Geometry& g, std::int64_t plane, const T* in, T* out,
               std::int64_t* indices) {
  const std::int64_t plane_size = g.size[0] * g.size[1] * g.size[2];
  std::int64_t at = plane * g.out[0] * g.out[1] * g.out[2];
  Extents o;
  for (o[0] = 0; o[0] < g.out[0]; ++o[0]) {
    for (o[1] = 0; o[1] < g.out[1]; ++o[1]) {
      for (o[2] = 0; o[2] < g.out[2]; ++o[2], ++at) {
        const std::array<Taps, kSpatial> taps = {TapsAt(g, 0, o[0]), TapsAt(g, 1, o[1]), TapsAt(g, 2, o[2])};
        Reduction<T> reduction(pooling);
        PoolWindow(pooling, g, in + plane * plane_size, taps, o, reduction);
        const std::int64_t padded = taps[0].counted * taps[1].counted * taps[2].counted;
        out[at] = reduction.Result(pooling.count_padding ? padded : reduction.count);
        if (indices != nullptr) indices[at] = plane * plane_size + reduction.index;
      }
    }
  }
}

template <class T>
Made MakeLoop(const Pooling& pooling) {
  return MakeKernel([pooling, g = GeometryOf(pooling)](In in, Out out, std::byte*) {
    const T* source = Data<T>(in[0]);
    T* destination = MutableData<T>(out[0]);
    const bool told = out.size() > 1 && out[1].data != nullptr;
    std::int64_t* indices = told ? MutableData<std::int64_t>(out[1]) : nullptr;
    const std::int64_t work = Product(pooling.window.out) * Product(pooling.window.kernel);
    ParallelRanges(g.planes, work, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t plane = first; plane < last; ++plane) {
        PoolPlane(pooling, g, plane, source, destination, indices);
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace

Made MakePoolingLoop(proto::DataType type, const Pooling& pooling) {
  return type == proto::FP64 ? MakeLoop<double>(pooling) : MakeLoop<float>(pooling);
}

}  // namespace troupe::gpu
