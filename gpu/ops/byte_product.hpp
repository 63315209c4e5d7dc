// BYTE PRODUCT: a product of matrices of bytes, summed in 32 bits, which wrap. By oneDNN where the processor's
// instructions for bytes do not saturate between the steps of a sum, else by loops of our own: both are exact.
#pragma once

#include <memory>
#include <span>

#include "gpu/ops/inner_kernel.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

struct ByteMatrices {
  std::int64_t rows = 0, depth = 0, columns = 0;
  proto::DataType a = proto::UINT8;  // UINT8 or INT8
  proto::DataType b = proto::INT8;
};

class ByteProduct {
 public:
  enum class By { kBest, kLoops };
  // Its scratch memory is added to `parts`.
  static absl::StatusOr<ByteProduct> Make(const StepContext& ctx, const ByteMatrices& matrices,
                                          ScratchParts& parts, By by = By::kBest);

  // out[r, c] = sum of (a[r, k] - zero_a) * (b[k, c] - zero_b). Zero points are one for all, or one for each row of A
  // and for each column of B.
  absl::Status Run(const std::byte* a, std::span<const std::int32_t> zero_a, const std::byte* b,
                   std::span<const std::int32_t> zero_b, std::int32_t* out, std::byte* scratch) const;

 private:
  void MoveZeros(const std::uint8_t* a, std::span<const std::int32_t> zero_a, const std::int8_t* b,
                 std::span<const std::int32_t> zero_b, std::int32_t* out, std::int32_t* sums) const;

  ByteMatrices m_;
  std::unique_ptr<Kernel> kernel_;  // null: loops
  std::uint64_t a_ = 0, b_ = 0;     // in scratch memory: A as UINT8 and B as INT8, where they are not
  std::uint64_t sums_ = 0;          // of B's columns
  std::uint64_t inner_ = 0;
};

}  // namespace troupe::gpu
