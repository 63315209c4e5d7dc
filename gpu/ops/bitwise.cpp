// BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot (opset 18): by element size, since a sign is a bit like any other.
#include <array>

#include "absl/strings/str_cat.h"
#include "gpu/ops/binary_rows.hpp"
#include "gpu/ops/families.hpp"

namespace troupe::gpu {
namespace {

enum class BitOperation { kAnd, kOr, kXor, kNot };

BitOperation OperationOf(const StepContext& ctx) {
  const std::string& op = ctx.step.op();
  if (op == "BitwiseAnd") return BitOperation::kAnd;
  if (op == "BitwiseOr") return BitOperation::kOr;
  return op == "BitwiseXor" ? BitOperation::kXor : BitOperation::kNot;
}

template <class U, BitOperation operation>
void BitRow(const Row& row) {
  const U* a = reinterpret_cast<const U*>(row.in[0]);
  const U* b = reinterpret_cast<const U*>(row.in[1]);
  U* out = reinterpret_cast<U*>(row.out);
  for (std::int64_t i = 0; i < row.n; ++i) {
    const U x = a[i * row.step[0]];
    if constexpr (operation == BitOperation::kNot) {
      out[i] = static_cast<U>(~x);
    } else {
      const U y = b[i * row.step[1]];
      if constexpr (operation == BitOperation::kAnd) out[i] = x & y;
      if constexpr (operation == BitOperation::kOr) out[i] = x | y;
      if constexpr (operation == BitOperation::kXor) out[i] = x ^ y;
    }
  }
}

template <class U>
RowFunction FindBitRow(BitOperation operation) {
  switch (operation) {
    case BitOperation::kAnd:
      return &BitRow<U, BitOperation::kAnd>;
    case BitOperation::kOr:
      return &BitRow<U, BitOperation::kOr>;
    case BitOperation::kXor:
      return &BitRow<U, BitOperation::kXor>;
    default:
      return &BitRow<U, BitOperation::kNot>;
  }
}

Inferred InferBitwise(const StepContext& ctx, Infos in) {
  const std::size_t inputs = OperationOf(ctx) == BitOperation::kNot ? 1 : 2;
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, inputs, inputs, kIntTypes));
  if (in.back().type != in[0].type) return ctx.Error("the inputs have different types");
  TROUPE_ASSIGN_OR_RETURN(Shape shape, BroadcastAll(ctx, in));
  return OneValue(ctx, in[0].type, std::move(shape));
}

Made MakeBitwise(const StepContext& ctx, Infos in, Infos out) {
  const std::size_t size = ElementSize(in[0].type);
  const RowFunction row = ForElementSize(
      size, [&](auto zero) -> RowFunction { return FindBitRow<decltype(zero)>(OperationOf(ctx)); });
  // The one input of BitwiseNot stands twice: its row reads the first only.
  const BroadcastLoop loop(std::array{in[0].shape, in.back().shape}, std::array{size, size}, out[0].shape,
                           size);
  return MakeKernel([row, loop](In in, Out out, std::byte*) {
    loop.Run(row, std::array<const std::byte*, 2>{in[0].data, in.back().data}, out[0].data, nullptr);
    return absl::OkStatus();
  });
}

constexpr Operator Entry(std::string_view name) {
  return {.name = name,
          .min_opset = 18,
          .max_opset = kNewestOpset,
          .infer = &InferBitwise,
          .make = &MakeBitwise,
          .types = kIntTypes};
}

constexpr Operator kOperators[] = {
    Entry("BitwiseAnd"),
    Entry("BitwiseOr"),
    Entry("BitwiseXor"),
    Entry("BitwiseNot"),
};

}  // namespace

std::span<const Operator> BitwiseOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
