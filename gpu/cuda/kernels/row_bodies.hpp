// What each kernel does for one row. On the GPU the lanes of a warp share it (Team: lane(), lanes(), and
// Sum, Largest, Product, First over its lanes), on the host a row has one lane.
#pragma once

#include "gpu/cuda/kernels/bodies.hpp"
#include "gpu/cuda/kernels/quantized_bodies.hpp"
#include "gpu/cuda/kernels/row_arguments.hpp"

namespace troupe::gpu::cuda {

// An element of a line, and the order that lines are searched in: a strict one even with NaN, which stands
// above every number.
struct Candidate {
  float value = 0;
  std::int64_t index = -1;  // none
};
struct Order {
  bool largest = true;
  bool last = false;  // of equal elements the last stands first
};
TROUPE_BODY bool Above(float x, float y) {
  return x > y || (x != x && y == y);
}
TROUPE_BODY bool Before(Order order, Candidate a, Candidate b) {
  if (a.index < 0 || b.index < 0) return a.index >= 0;
  if (Above(a.value, b.value)) return order.largest;
  if (Above(b.value, a.value)) return !order.largest;
  return order.last ? a.index > b.index : a.index < b.index;
}

// One lane: the host.
struct Alone {
  TROUPE_BODY int lane() const { return 0; }
  TROUPE_BODY int lanes() const { return 1; }
  TROUPE_BODY float Sum(float x) const { return x; }
  TROUPE_BODY float Largest(float x) const { return x; }
  TROUPE_BODY float Product(float x) const { return x; }
  TROUPE_BODY Candidate First(Order, Candidate x) const { return x; }
};

template <class Team>
TROUPE_BODY void RunSoftmax(const SoftmaxArguments& a, std::int64_t row, Team team) {
  const std::int64_t begin = row / a.inner * a.n * a.inner + row % a.inner;
  float largest = -INFINITY;
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes())
    largest = fmaxf(largest, a.in[begin + k * a.inner]);
  largest = team.Largest(largest);
  float sum = 0;
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes())
    sum += expf(a.in[begin + k * a.inner] - largest);
  sum = team.Sum(sum);
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes()) {
    const float x = a.in[begin + k * a.inner] - largest;
    a.out[begin + k * a.inner] = a.log ? x - logf(sum) : expf(x) / sum;
  }
}

template <class Team>
TROUPE_BODY void RunLayerNorm(const LayerNormArguments& a, std::int64_t row, Team team) {
  const float* const in = a.in + row * a.n;
  float* const out = a.out + row * a.n;
  float sum = 0;
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes()) sum += in[k];
  const float mean = team.Sum(sum) / static_cast<float>(a.n);
  float squares = 0;
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes()) squares += (in[k] - mean) * (in[k] - mean);
  const float inverse = 1.0F / sqrtf(team.Sum(squares) / static_cast<float>(a.n) + a.epsilon);
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes())
    out[k] = (in[k] - mean) * inverse * a.scale[k] + (a.shift == nullptr ? 0.0F : a.shift[k]);
  if (team.lane() == 0 && a.mean != nullptr) a.mean[row] = mean;
  if (team.lane() == 0 && a.inverse != nullptr) a.inverse[row] = inverse;
}

TROUPE_BODY float FoldStep(ReduceOp op, float so_far, float x) {
  switch (op) {
    case ReduceOp::kMax:
      return so_far > x || so_far != so_far ? so_far : x;
    case ReduceOp::kMin:
      return so_far < x || so_far != so_far ? so_far : x;
    case ReduceOp::kProd:
      return so_far * x;
    case ReduceOp::kL1:
      return so_far + fabsf(x);
    case ReduceOp::kL2:
    case ReduceOp::kSumSquare:
      return so_far + x * x;
    default:
      return so_far + x;
  }
}

// log(sum(exp)), less its largest so that nothing overflows.
template <class Team>
TROUPE_BODY float LogSumExp(const ReduceArguments& a, const float* in, Team team) {
  float largest = -INFINITY;
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes())
    largest = fmaxf(largest, in[OffsetOf(a.folded, a.folded_at, k)]);
  largest = team.Largest(largest);
  if (largest == -INFINITY || largest == INFINITY) largest = 0;
  float sum = 0;
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes())
    sum += expf(in[OffsetOf(a.folded, a.folded_at, k)] - largest);
  return largest + logf(team.Sum(sum));
}

template <class Team>
TROUPE_BODY void RunReduce(const ReduceArguments& a, std::int64_t row, Team team) {
  const float* const in = a.in + OffsetOf(a.kept, a.kept_at, row);
  if (a.op == ReduceOp::kLogSumExp) {
    const float whole = LogSumExp(a, in, team);
    if (team.lane() == 0) a.out[row] = whole;
    return;
  }
  float value = a.op == ReduceOp::kMax    ? -INFINITY
                : a.op == ReduceOp::kMin  ? INFINITY
                : a.op == ReduceOp::kProd ? 1.0F
                                          : 0.0F;
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes())
    value = FoldStep(a.op, value, in[OffsetOf(a.folded, a.folded_at, k)]);
  if (a.op == ReduceOp::kMax) {
    value = team.Largest(value);
  } else if (a.op == ReduceOp::kMin) {
    value = -team.Largest(-value);
  } else if (a.op == ReduceOp::kProd) {
    value = team.Product(value);
  } else {
    value = team.Sum(value);
  }
  if (a.op == ReduceOp::kMean) value = value / static_cast<float>(a.n);
  if (a.op == ReduceOp::kL2) value = sqrtf(value);
  if (a.op == ReduceOp::kLogSum) value = logf(value);
  if (team.lane() == 0) a.out[row] = value;
}

// The first of those behind `after` (none: of all).
template <class Team>
TROUPE_BODY Candidate FirstBehind(const float* line, std::int64_t n, std::int64_t inner, Order order,
                                  Candidate after, Team team) {
  Candidate best;
  for (std::int64_t k = team.lane(); k < n; k += team.lanes()) {
    const Candidate here{line[k * inner], k};
    if ((after.index < 0 || Before(order, after, here)) && Before(order, here, best)) best = here;
  }
  return team.First(order, best);
}

template <class Team>
TROUPE_BODY void RunArg(const ArgArguments& a, std::int64_t row, Team team) {
  const float* const line = a.in + row / a.inner * a.n * a.inner + row % a.inner;
  const Candidate best = FirstBehind(line, a.n, a.inner, {a.largest, a.last}, Candidate(), team);
  if (team.lane() == 0) a.out[row] = best.index;
}

// Round by round; of equal elements the lower index comes first.
template <class Team>
TROUPE_BODY void RunTopK(const TopKArguments& a, std::int64_t row, Team team) {
  const float* const line = a.in + row / a.inner * a.n * a.inner + row % a.inner;
  const std::int64_t begin = row / a.inner * a.k * a.inner + row % a.inner;
  Candidate last;
  for (std::int64_t k = 0; k < a.k; ++k) {
    last = FirstBehind(line, a.n, a.inner, {a.largest, false}, last, team);
    if (team.lane() != 0) continue;
    if (a.values != nullptr) a.values[begin + k * a.inner] = last.value;
    if (a.indices != nullptr) a.indices[begin + k * a.inner] = last.index;
  }
}

// It always holds 0.
template <class Team>
TROUPE_BODY void RunRange(const RangeArguments& a, std::int64_t, Team team) {
  float low = 0;
  float high = 0;
  for (std::int64_t k = team.lane(); k < a.n; k += team.lanes()) {
    low = fminf(low, a.in[k]);
    high = fmaxf(high, a.in[k]);
  }
  low = -team.Largest(-low);
  high = team.Largest(high);
  if (team.lane() != 0) return;
  const float range = (high - low) / 255.0F;
  *a.scale = range > 0 ? range : 1.0F;
  *a.zero = static_cast<std::uint8_t>(QuantizedOf(Element::kUint8, -low / *a.scale, 0));
}

}  // namespace troupe::gpu::cuda
