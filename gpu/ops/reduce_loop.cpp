// Compiled with its own flags (CMakeLists.txt).
#include "gpu/ops/reduce_loop.hpp"

#include <algorithm>
#include <utility>

#include "gpu/ops/reduce_functions.hpp"

namespace troupe::gpu {

ReduceLoop::ReduceLoop(const Shape& shape, const Shape& sorted_axes) {
  struct Segment {
    Axis axis;
    bool reduced;
  };
  std::vector<Segment> segments;  // fastest first
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const bool gone =
        std::binary_search(sorted_axes.begin(), sorted_axes.end(), static_cast<std::int64_t>(d));
    if (gone) folded *= shape[d];
    if (shape[d] != 1) {
      if (!segments.empty() && segments.back().reduced == gone) {
        segments.back().axis.size *= shape[d];
      } else {
        segments.push_back({{shape[d], stride}, gone});
      }
    }
    stride *= shape[d];
  }
  if (segments.empty()) return;
  inner = segments.front().axis;
  inner_reduced = segments.front().reduced;
  for (std::size_t i = segments.size(); i-- > 1;) {
    (segments[i].reduced ? reduced : kept).push_back(segments[i].axis);
    (segments[i].reduced ? reduced_count : kept_count) *= segments[i].axis.size;
  }
}

namespace {

constexpr std::int64_t kLanes =
    8;  // accumulators per row, so that a fold has no chain of dependent additions

template <class Fold, class T>
typename Fold::Acc FoldRow(const T* row, std::int64_t n) {
  typename Fold::Acc lanes[kLanes];
  for (auto& lane : lanes) lane = Fold::Init();
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) Fold::Step(lanes[l], row[i + l]);
  }
  for (; i < n; ++i) Fold::Step(lanes[0], row[i]);
  for (std::int64_t l = 1; l < kLanes; ++l) Fold::Merge(lanes[0], lanes[l]);
  return lanes[0];
}

template <class Fold, class T>
void Reduce(const ReduceLoop& loop, const std::byte* in_bytes, std::byte* out_bytes, std::byte* scratch) {
  using Acc = typename Fold::Acc;
  const T* in = reinterpret_cast<const T*>(in_bytes);
  T* out = reinterpret_cast<T*>(out_bytes);
  Acc* row_acc = reinterpret_cast<Acc*>(scratch);
  for (std::int64_t k = 0; k < loop.kept_count; ++k) {
    const T* base = in + OffsetOf(loop.kept, k);
    if (loop.inner_reduced) {
      Acc acc = Fold::Init();
      for (std::int64_t r = 0; r < loop.reduced_count; ++r) {
        Fold::Merge(acc, FoldRow<Fold>(base + OffsetOf(loop.reduced, r), loop.inner.size));
      }
      *out++ = Fold::Final(acc, loop.folded);
      continue;
    }
    for (std::int64_t j = 0; j < loop.inner.size; ++j) row_acc[j] = Fold::Init();
    for (std::int64_t r = 0; r < loop.reduced_count; ++r) {
      const T* row = base + OffsetOf(loop.reduced, r);
      for (std::int64_t j = 0; j < loop.inner.size; ++j) Fold::Step(row_acc[j], row[j]);
    }
    for (std::int64_t j = 0; j < loop.inner.size; ++j) *out++ = Fold::Final(row_acc[j], loop.folded);
  }
}

template <class T>
ReduceFunction Find(std::string_view op) {
  static constexpr std::pair<std::string_view, ReduceFunction> kReductions[] = {
      {"ReduceSum", &Reduce<SumFold<T>, T>},
      {"ReduceMean", &Reduce<MeanFold<T>, T>},
      {"ReduceMax", &Reduce<MaxFold<T>, T>},
      {"ReduceMin", &Reduce<MinFold<T>, T>},
      {"ReduceProd", &Reduce<ProdFold<T>, T>},
      {"ReduceL1", &Reduce<L1Fold<T>, T>},
      {"ReduceL2", &Reduce<L2Fold<T>, T>},
      {"ReduceLogSum", &Reduce<LogSumFold<T>, T>},
      {"ReduceLogSumExp", &Reduce<LogSumExpFold<T>, T>},
      {"ReduceSumSquare", &Reduce<SumSquareFold<T>, T>},
  };
  for (const auto& [name, function] : kReductions) {
    if (name == op) return function;
  }
  return nullptr;
}

}  // namespace

ReduceFunction FindReduce(std::string_view op, proto::DataType type) {
  return ForWideType(type, [&](auto zero) -> ReduceFunction { return Find<decltype(zero)>(op); });
}

}  // namespace troupe::gpu
