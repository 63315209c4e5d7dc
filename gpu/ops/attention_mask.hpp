// What the attention operators of com.microsoft add to the scores: a mask of integers in one of four forms, and a bias.
#pragma once

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

struct AttentionMask {
  enum class Kind {
    kNone,
    kEnds,           // [batch]: so many keys are seen
    kEndsAndStarts,  // [2 * batch]: the ends, then where each begins
    kKeys,           // [batch, total]: more than 0 where a key is seen
    kQueries,        // [batch, rows, total]: the same for each query
  };
  Kind kind = Kind::kNone;
  std::size_t mask = 0;  // inputs
  std::size_t bias = 0;
  bool has_bias = false;
  std::int64_t batch = 0, heads = 0, rows = 0, total = 0;
  std::int64_t bias_batch = 0, bias_heads = 0;
  float filter = -10000;

  // Something is added to the scores, and it has to be computed first (a bias alone is added as it is).
  [[nodiscard]] bool computed() const { return kind != Kind::kNone; }
  // [batch, heads or 1, rows or 1, total]
  [[nodiscard]] Shape shape() const;
  // The sum of mask and bias, `shape()` floats.
  void Fill(In in, float* out) const;
};

// `mask_name`, `bias_name`: of the inputs, for errors.
absl::StatusOr<AttentionMask> ReadAttentionMask(const StepContext& ctx, Infos in, std::size_t mask,
                                                const char* mask_name, std::size_t bias, Shape whole);

}  // namespace troupe::gpu
