// What com.microsoft.Attention and MultiHeadAttention have in common: softmax(scale * Q K' + mask + bias) V, by the
// kernel of the standard's Attention.
#pragma once

#include <array>
#include <memory>

#include "gpu/ops/attention_mask.hpp"
#include "gpu/ops/inner_kernel.hpp"

namespace troupe::gpu {

// `rows` queries see `past` and then `keys` keys.
struct Attended {
  std::int64_t batch = 0, rows = 0, keys = 0, past = 0;
  std::int64_t heads = 0, size = 0, value_size = 0;  // of one head
  AttentionMask mask;

  [[nodiscard]] std::int64_t total() const { return past + keys; }
  [[nodiscard]] Shape whole() const { return {batch, heads, rows, total()}; }
  [[nodiscard]] Shape query() const { return {batch, rows, heads * size}; }
  [[nodiscard]] Shape key() const { return {batch, keys, heads * size}; }
  [[nodiscard]] Shape value() const { return {batch, keys, heads * value_size}; }
  [[nodiscard]] Shape result() const { return {batch, rows, heads * value_size}; }
  // One of the two halves of a cache of `length` rows.
  [[nodiscard]] Shape cache(std::int64_t length, std::int64_t of) const { return {batch, heads, length, of}; }
};

// The attribute `num_heads`, at least 1.
absl::StatusOr<std::int64_t> ReadHeadCount(const StepContext& ctx);
// All inputs but `mask` have the type of the first.
absl::Status CheckSameTypes(const StepContext& ctx, Infos in, std::size_t mask);
// An error that names the input when it is there.
absl::Status RefuseInput(const StepContext& ctx, Infos in, std::size_t index, const char* name);

// Where the rows of one of Q, K, V lie: strides in elements.
struct Source {
  std::int64_t batch = 0, row = 0, head = 0;
};

// Copies [batch, rows, heads, size] to rows that follow one another ([batch, rows, heads * size], `shape`), and adds a
// vector as long as a row where there is one.
void CopyRows(const float* from, const Source& source, const Shape& shape, std::int64_t heads,
              const float* bias, float* to);

// The standard's Attention on flat Q, K, V, with the mask that it computes first. Outputs: the result, the caches.
class AttentionCore {
 public:
  static absl::StatusOr<AttentionCore> Make(const StepContext& ctx, const Attended& form, bool caches,
                                            ScratchParts& parts);

  // `in`: of the whole step, for the mask. `past` and `present` are keys and values; null where there are none.
  absl::Status Run(In in, std::array<std::byte*, 3> qkv, std::array<std::byte*, 2> past, std::byte* result,
                   std::array<std::byte*, 2> present, std::byte* scratch) const;

 private:
  Attended form_;
  std::unique_ptr<Kernel> kernel_;
  std::uint64_t mask_ = 0;  // in scratch memory
  std::uint64_t inner_ = 0;
};

}  // namespace troupe::gpu
