// The two products of attention for all queries of several heads at a time, by oneDNN. Worth it from some queries on; one
// query is quicker by the loops of attention_rows.hpp.
#pragma once

#include <memory>

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// Steps in elements from one head, and from one row, to the next.
struct HeadSteps {
  std::int64_t head = 0;
  std::int64_t row = 0;
};

struct AttentionBlock {
  std::int64_t heads = 0;  // at a time
  std::int64_t rows = 0, keys = 0;
  std::int64_t size = 0, value_size = 0;  // of one head
  HeadSteps query, key, value, result;
  float scale = 1;
};

class AttentionBlocks {
 public:
  static absl::StatusOr<AttentionBlocks> Make(const StepContext& ctx, const AttentionBlock& block);

  // Of one product, beside the scores.
  [[nodiscard]] Bytes scratch() const;
  // scores [heads, rows, keys] = scale * Q K'
  absl::Status Score(const float* query, const float* key, float* scores, std::byte* scratch) const;
  // result = weights [heads, rows, keys] V
  absl::Status Mix(const float* weights, const float* value, float* result, std::byte* scratch) const;

 private:
  AttentionBlocks(std::unique_ptr<Kernel> score, std::unique_ptr<Kernel> mix);

  std::unique_ptr<Kernel> score_;
  std::unique_ptr<Kernel> mix_;
};

}  // namespace troupe::gpu
