// What each kernel does for one row. On the GPU the lanes of a warp share it (Team: lane(), lanes(), and
// Sum, Largest, Product over its lanes), on the host a row has one lane.
#pragma once

#include "gpu/cuda/kernels/bodies.hpp"

namespace troupe::gpu::cuda {

// One lane: the host.
struct Alone {
  TROUPE_BODY int lane() const { return 0; }
  TROUPE_BODY int lanes() const { return 1; }
  TROUPE_BODY float Sum(float x) const { return x; }
  TROUPE_BODY float Largest(float x) const { return x; }
  TROUPE_BODY float Product(float x) const { return x; }
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

template <class Team>
TROUPE_BODY void RunReduce(const ReduceArguments& a, std::int64_t row, Team team) {
  const float* const in = a.in + OffsetOf(a.kept, a.kept_at, row);
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

}  // namespace troupe::gpu::cuda
