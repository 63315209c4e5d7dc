// FAMILIES: one array of operators per source file of this folder; operator_table.cpp lists them all.
#pragma once

#include <span>

#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// Backed by oneDNN.
[[nodiscard]] std::span<const Operator> ConvolutionOperators();
[[nodiscard]] std::span<const Operator> PoolingOperators();
[[nodiscard]] std::span<const Operator> MatMulOperators();
[[nodiscard]] std::span<const Operator> NormalizationOperators();

// Written here.
[[nodiscard]] std::span<const Operator> ElementwiseOperators();
[[nodiscard]] std::span<const Operator> ShapeOperators();
[[nodiscard]] std::span<const Operator> DataMovementOperators();
[[nodiscard]] std::span<const Operator> ReductionOperators();
[[nodiscard]] std::span<const Operator> DetectionOperators();
[[nodiscard]] std::span<const Operator> TransformerOperators();
[[nodiscard]] std::span<const Operator> QuantizationOperators();

}  // namespace troupe::gpu
