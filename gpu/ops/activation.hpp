// Element-wise functions of one input by name: the Unary family and the activations fused into other steps.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "gpu/ops/broadcast_loop.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// What the functions with attributes read; the names are those of the ONNX attributes in the order they are
// listed there (Clip: min, max; Selu: alpha, gamma; HardSigmoid: alpha, beta; Shrink: bias, lambd).
struct UnaryParameters {
  double a = 0;
  double b = 0;
};

// The row function of a unary operator for `type` (a wide type, see convert.hpp); null when there is none.
[[nodiscard]] RowFunction FindUnaryRow(std::string_view op, proto::DataType type);
[[nodiscard]] RowFunction FindVectorRow(std::string_view op);   // FP32, compiled for vector instructions
[[nodiscard]] RowFunction FindFloat32Row(std::string_view op);  // FP32, through the C library
[[nodiscard]] RowFunction FindFloat64Row(std::string_view op);

// The activation that the importer fused into a step (Step.activation), applied in place on FP32 rows.
struct FusedActivation {
  RowFunction row = nullptr;  // null: none
  UnaryParameters parameters;
};
absl::StatusOr<FusedActivation> FindFusedActivation(const StepContext& ctx);

}  // namespace troupe::gpu
