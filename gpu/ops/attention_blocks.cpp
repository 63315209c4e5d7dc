#include "gpu/ops/attention_blocks.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.hpp"
#include "gpu/ops/product_program.hpp"

namespace troupe::gpu {
namespace {

using dnnl::memory;

memory::desc Described(const Shape& dims, const Shape& strides) {
  return {dims, memory::data_type::f32, strides};
}

// A plain product: no activation of the step, whose result this is not.
Made MakePlainProduct(const StepContext& ctx, const Multiplication& product) {
  proto::Step step;
  step.set_op(ctx.step.op());
  step.set_name(ctx.step.name());
  const std::vector<ValueInfo> in(2);
  return GuardDnnl(ctx, [&] { return MakeProduct({step, ctx.opset}, product, in); });
}

absl::Status Multiply(const Kernel& kernel, const float* a, const float* b, float* out, std::byte* scratch) {
  // Inputs are only read; a view has no form for that.
  const auto view = [](const float* data) {
    return TensorView{proto::FP32, {}, reinterpret_cast<std::byte*>(const_cast<float*>(data))};
  };
  const std::array<TensorView, 2> in = {view(a), view(b)};
  TensorView result = view(out);
  return kernel.Run(in, std::span(&result, 1), scratch);
}

}  // namespace

AttentionBlocks::AttentionBlocks(std::unique_ptr<Kernel> score, std::unique_ptr<Kernel> mix)
    : score_(std::move(score)), mix_(std::move(mix)) {}

absl::StatusOr<AttentionBlocks> AttentionBlocks::Make(const StepContext& ctx, const AttentionBlock& block) {
  Multiplication score;
  score.a = Described({block.heads, block.rows, block.size}, {block.query.head, block.query.row, 1});
  score.b_dims = {block.heads, block.size, block.keys};
  score.b = Described(score.b_dims, {block.key.head, 1, block.key.row});
  score.out = RowMajorDesc(Shape{block.heads, block.rows, block.keys});
  score.scale = block.scale;
  Multiplication mix;
  mix.a = score.out;
  mix.b_dims = {block.heads, block.keys, block.value_size};
  mix.b = Described(mix.b_dims, {block.value.head, block.value.row, 1});
  mix.out = Described({block.heads, block.rows, block.value_size}, {block.result.head, block.result.row, 1});
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> scores, MakePlainProduct(ctx, score));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> mixed, MakePlainProduct(ctx, mix));
  return AttentionBlocks(std::move(scores), std::move(mixed));
}

Bytes AttentionBlocks::scratch() const {
  return std::max(score_->scratch(), mix_->scratch());
}

absl::Status AttentionBlocks::Score(const float* query, const float* key, float* scores,
                                    std::byte* scratch) const {
  return Multiply(*score_, query, key, scores, scratch);
}

absl::Status AttentionBlocks::Mix(const float* weights, const float* value, float* result,
                                  std::byte* scratch) const {
  return Multiply(*mix_, weights, value, result, scratch);
}

}  // namespace troupe::gpu
