// The table of all operators: every family by name, nothing registers itself.
#include <algorithm>

#include "gpu/ops/families.hpp"

namespace troupe::gpu {
namespace {

constexpr std::span<const Operator> (*kFamilies[])() = {
    ConvolutionOperators,
    PoolingOperators,
    MatMulOperators,
    NormalizationOperators,
    UnaryOperators,
    ArithmeticOperators,
    LogicOperators,
    ReshapeOperators,
    ConcatOperators,
    SliceOperators,
    GatherOperators,
    ScatterOperators,
    GenerateOperators,
    RearrangeOperators,
    ReductionOperators,
    SelectionOperators,
    LayerNormOperators,
    ResizeOperators,
    DetectionOperators,
    GridSampleOperators,
    EinsumOperators,
    RecurrentOperators,
    BitwiseOperators,
    GroupNormOperators,
    AttentionOperators,
    RotaryOperators,
    AffineGridOperators,
    CenterCropPadOperators,
    Col2ImOperators,
    SpectrumOperators,
    SignalTableOperators,
    QuantizeOperators,
    QuantizedMatMulOperators,
    QuantizedConvolutionOperators,
    TreeEnsembleOperators,
    LinearModelOperators,
    SupportVectorOperators,
    FeatureScalingOperators,
    CategoryOperators,
    FusedMatMulOperators,
    FusedAttentionOperators,
    ManyHeadOperators,
    EmbedNormOperators,
    BlockMatMulOperators,
    ByteElementOperators,
    BytePoolOperators,
    GroupQueryOperators,
    FusedRotaryOperators,
    TextOperators,
    VectorizerOperators,
    LabelOperators,
};

}  // namespace

std::vector<const Operator*> AllOperators() {
  std::vector<const Operator*> all;
  for (auto family : kFamilies) {
    for (const Operator& entry : family()) all.push_back(&entry);
  }
  return all;
}

const Operator* FindOperator(std::string_view name, int opset) {
  static const std::vector<const Operator*> sorted = [] {
    auto all = AllOperators();
    std::ranges::stable_sort(all, {}, [](const Operator* entry) { return entry->name; });
    return all;
  }();
  auto entry = std::ranges::lower_bound(sorted, name, {}, [](const Operator* e) { return e->name; });
  for (; entry != sorted.end() && (*entry)->name == name; ++entry)
    if ((*entry)->min_opset <= opset && opset <= (*entry)->max_opset) return *entry;
  return nullptr;
}

}  // namespace troupe::gpu
