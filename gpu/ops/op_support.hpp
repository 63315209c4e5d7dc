// Shared by the operator families: input checks, axes, constants, strides, and kernels made from a function
// object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

using Inferred = absl::StatusOr<std::vector<ValueInfo>>;
using Made = absl::StatusOr<std::unique_ptr<Kernel>>;
using Infos = std::span<const ValueInfo>;
using In = std::span<const TensorView>;
using Out = std::span<TensorView>;

inline constexpr TypeSet kFloatTypes = TypesOf({proto::FP16, proto::FP32, proto::FP64, proto::BF16});
inline constexpr TypeSet kSignedTypes = TypesOf({proto::INT8, proto::INT16, proto::INT32, proto::INT64});
inline constexpr TypeSet kUnsignedTypes =
    TypesOf({proto::UINT8, proto::UINT16, proto::UINT32, proto::UINT64});
inline constexpr TypeSet kBoolType = TypesOf({proto::BOOL});
inline constexpr TypeSet kIntTypes = kSignedTypes | kUnsignedTypes;
inline constexpr TypeSet kNumberTypes = kFloatTypes | kIntTypes;
inline constexpr TypeSet kFixedTypes = kNumberTypes | kBoolType;  // everything but strings
inline constexpr TypeSet kTextType = TypesOf({proto::BYTES});
inline constexpr TypeSet kAnyTypes = kFixedTypes | kTextType;  // of operators that only move elements
inline constexpr TypeSet kIndexTypes = TypesOf({proto::INT32, proto::INT64});

[[nodiscard]] constexpr bool Has(TypeSet set, proto::DataType type) {
  return ((set >> type) & 1U) != 0;
}

// Between `least` and `most` inputs are given, the first `least` are present, every shape is sane, and input
// 0 has one of `types`.
absl::Status CheckInputs(const StepContext& ctx, Infos in, std::size_t least, std::size_t most,
                         TypeSet types);
absl::Status CheckType(const StepContext& ctx, Infos in, std::size_t index, TypeSet types);
// Every attribute of the step is one of `known`: an operator from outside the standard may carry others, which change
// what it means.
absl::Status CheckAttributes(const StepContext& ctx, std::initializer_list<std::string_view> known);
// Input `index` exists and is not the empty name.
[[nodiscard]] bool Present(Infos in, std::size_t index);
[[nodiscard]] inline bool Present(In in, std::size_t index) {
  return index < in.size() && in[index].type != proto::DATA_TYPE_UNSPECIFIED;
}

// `axis` in [0, rank), counting negative ones from the end.
absl::StatusOr<std::int64_t> NormalizeAxis(const StepContext& ctx, std::int64_t axis, std::size_t rank);
// Each normalised; sorted; a repeated axis is an error.
absl::StatusOr<Shape> NormalizeAxes(const StepContext& ctx, Shape axes, std::size_t rank);

// Contents of integer input `index` when the plan knows them; nullopt when only the run will.
absl::StatusOr<std::optional<Shape>> KnownInts(const StepContext& ctx, Infos in, std::size_t index);
// The same, for an input that must be known because nothing bounds the output without it.
absl::StatusOr<Shape> RequireInts(const StepContext& ctx, Infos in, std::size_t index, const char* what);
// Contents of a float input (FP16, FP32, FP64, BF16) that must be known.
absl::StatusOr<std::vector<float>> RequireFloats(const StepContext& ctx, Infos in, std::size_t index,
                                                 const char* what);
// INT32 or INT64 contents of a tensor with `count` elements.
[[nodiscard]] Shape ReadInts(proto::DataType type, const std::byte* data, std::int64_t count);
// Element `i` of INT32 or INT64 data.
[[nodiscard]] std::int64_t IntAt(proto::DataType type, const std::byte* data, std::int64_t i);

// An output; its element count has been checked for overflow.
absl::StatusOr<ValueInfo> Value(const StepContext& ctx, proto::DataType type, Shape shape,
                                bool bounded = false);
// The usual answer of an Infer function: one output.
Inferred OneValue(const StepContext& ctx, proto::DataType type, Shape shape, bool bounded = false);

// The type behind an ONNX element type number (the attributes `to` and `dtype`), which differs from ours.
[[nodiscard]] proto::DataType FromOnnxType(std::int64_t type);
// Its name in ONNX, for errors: "FLOAT8E4M3FN"; "17" for a number without a name.
[[nodiscard]] std::string OnnxTypeName(std::int64_t type);

// Product of sane dimensions (a shape that CountElements accepted).
[[nodiscard]] std::int64_t Product(std::span<const std::int64_t> shape);
[[nodiscard]] inline std::int64_t Elements(const TensorView& view) {
  return Product(view.shape);
}
[[nodiscard]] Shape RowMajorStrides(std::span<const std::int64_t> shape);
[[nodiscard]] inline std::size_t BytesOf(const TensorView& view) {
  return static_cast<std::size_t>(Product(view.shape)) * CellSize(view.type);
}
// memcpy that accepts a null or aliased source when there is nothing to move.
void CopyBytes(std::byte* to, const std::byte* from, std::size_t bytes);

template <class T>
[[nodiscard]] const T* Data(const TensorView& view) {
  return reinterpret_cast<const T*>(view.data);
}
template <class T>
[[nodiscard]] T* MutableData(const TensorView& view) {
  return reinterpret_cast<T*>(view.data);
}

// A kernel whose Run is a function object.
template <class F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(F run, Bytes scratch, int in_place)
      : run_(std::move(run)), scratch_(scratch), in_place_(in_place) {}
  [[nodiscard]] Bytes scratch() const override { return scratch_; }
  absl::Status Run(In in, Out out, std::byte* scratch) const override { return run_(in, out, scratch); }
  [[nodiscard]] int in_place_input() const override { return in_place_; }

 private:
  F run_;
  Bytes scratch_;
  int in_place_;
};

template <class F>
[[nodiscard]] Made MakeKernel(F run, Bytes scratch = Bytes(0), int in_place = -1) {
  return std::unique_ptr<Kernel>(std::make_unique<FunctionKernel<F>>(std::move(run), scratch, in_place));
}

// Calls f with a value of an unsigned type of `size` bytes: movement of elements does not care what they
// mean.
template <class F>
auto ForElementSize(std::size_t size, F&& f) {
  switch (size) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

// Calls f with a value of the C++ type of a wide type: FP32, FP64, INT32, INT64, UINT64 (gpu/ops/convert.hpp
// brings the others there); returns a default-constructed answer for any other type.
template <class F>
auto ForWideType(proto::DataType type, F&& f) -> decltype(f(float{})) {
  switch (type) {
    case proto::FP32:
      return f(float{});
    case proto::FP64:
      return f(double{});
    case proto::INT32:
      return f(std::int32_t{});
    case proto::INT64:
      return f(std::int64_t{});
    case proto::UINT64:
      return f(std::uint64_t{});
    default:
      return decltype(f(float{}))();
  }
}

}  // namespace troupe::gpu
