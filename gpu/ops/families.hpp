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
[[nodiscard]] std::span<const Operator> UnaryOperators();
[[nodiscard]] std::span<const Operator> ArithmeticOperators();
[[nodiscard]] std::span<const Operator> LogicOperators();
[[nodiscard]] std::span<const Operator> ReshapeOperators();
[[nodiscard]] std::span<const Operator> ConcatOperators();
[[nodiscard]] std::span<const Operator> SliceOperators();
[[nodiscard]] std::span<const Operator> GatherOperators();
[[nodiscard]] std::span<const Operator> ScatterOperators();
[[nodiscard]] std::span<const Operator> GenerateOperators();
[[nodiscard]] std::span<const Operator> RearrangeOperators();
[[nodiscard]] std::span<const Operator> ReductionOperators();
[[nodiscard]] std::span<const Operator> SelectionOperators();
[[nodiscard]] std::span<const Operator> LayerNormOperators();
[[nodiscard]] std::span<const Operator> ResizeOperators();
[[nodiscard]] std::span<const Operator> DetectionOperators();
[[nodiscard]] std::span<const Operator> GridSampleOperators();
[[nodiscard]] std::span<const Operator> EinsumOperators();
[[nodiscard]] std::span<const Operator> RecurrentOperators();
[[nodiscard]] std::span<const Operator> BitwiseOperators();
[[nodiscard]] std::span<const Operator> GroupNormOperators();
[[nodiscard]] std::span<const Operator> AttentionOperators();
[[nodiscard]] std::span<const Operator> RotaryOperators();
[[nodiscard]] std::span<const Operator> AffineGridOperators();
[[nodiscard]] std::span<const Operator> CenterCropPadOperators();
[[nodiscard]] std::span<const Operator> Col2ImOperators();
[[nodiscard]] std::span<const Operator> SpectrumOperators();
[[nodiscard]] std::span<const Operator> SignalTableOperators();
[[nodiscard]] std::span<const Operator> QuantizeOperators();
[[nodiscard]] std::span<const Operator> QuantizedMatMulOperators();
[[nodiscard]] std::span<const Operator> QuantizedConvolutionOperators();
[[nodiscard]] std::span<const Operator> TextOperators();
[[nodiscard]] std::span<const Operator> VectorizerOperators();

// Classic models, of the domain ai.onnx.ml.
[[nodiscard]] std::span<const Operator> TreeEnsembleOperators();
[[nodiscard]] std::span<const Operator> LinearModelOperators();
[[nodiscard]] std::span<const Operator> SupportVectorOperators();
[[nodiscard]] std::span<const Operator> FeatureScalingOperators();
[[nodiscard]] std::span<const Operator> CategoryOperators();
[[nodiscard]] std::span<const Operator> LabelOperators();

// Of the domain com.microsoft; those that are chains of the above become them at import (gpu/import/fused_nodes.hpp).
[[nodiscard]] std::span<const Operator> FusedMatMulOperators();
[[nodiscard]] std::span<const Operator> FusedAttentionOperators();
[[nodiscard]] std::span<const Operator> ManyHeadOperators();
[[nodiscard]] std::span<const Operator> GroupQueryOperators();
[[nodiscard]] std::span<const Operator> FusedRotaryOperators();
[[nodiscard]] std::span<const Operator> EmbedNormOperators();
[[nodiscard]] std::span<const Operator> BlockMatMulOperators();
[[nodiscard]] std::span<const Operator> ByteElementOperators();
[[nodiscard]] std::span<const Operator> BytePoolOperators();

}  // namespace troupe::gpu
