// com.microsoft.RotaryEmbedding: the standard's, whose positions come before its tables, or as the first of them.
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/inner_kernel.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});
constexpr int kRotaryOpset = 23;

// Inputs: input, position_ids, cos_cache, sin_cache.
struct Turned {
  std::int64_t batch = 0, rows = 0;
  std::int64_t heads = 0;
  bool first_only = false;  // one position: that of the first row of every sequence
};

absl::StatusOr<Turned> ReadTurned(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttributes(
      ctx, {"interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 4, 4, kTypes));
  if (ctx.Int("is_packed_batching", 0) != 0)
    return ctx.Error("attribute 'is_packed_batching' is not supported; export the model without it");
  if (ctx.Float("scale", 1) != 1)
    return ctx.Error("attribute 'scale' is not supported; export the model without it");
  const Shape& x = in[0].shape;
  const Shape& table = in[2].shape;
  if ((x.size() != 3 && x.size() != 4) || table.size() != 2 || table[1] < 1)
    return ctx.Error(absl::StrCat("input ", FormatShape(x), " must have 3 or 4 dimensions, and cos_cache ",
                                  FormatShape(table), " 2"));
  Turned t;
  t.batch = x[0];
  t.rows = x[x.size() == 3 ? 1 : 2];
  t.heads = ctx.Int("num_heads", 0);
  // Without a number of heads, all of a head turns.
  if (x.size() == 3 && t.heads == 0) t.heads = x[2] / (2 * table[1]);
  t.first_only = in[1].shape == Shape{1};
  if (in[1].type != proto::INT64 || (!t.first_only && in[1].shape != Shape{t.batch, t.rows}))
    return ctx.Error(absl::StrCat("position_ids ", FormatShape(in[1].shape), " must be INT64[1] or INT64[",
                                  t.batch, ",", t.rows, "]"));
  return t;
}

// The input, the tables and a position for each row, as the standard has them.
std::array<ValueInfo, 4> InnerInputs(const Turned& t, Infos in) {
  ValueInfo ids;
  ids.type = proto::INT64;
  ids.shape = {t.batch, t.rows};
  return {in[0], in[2], in[3], ids};
}

InnerStep InnerTurn(const StepContext& ctx, const Turned& t, Infos in) {
  InnerStep step(ctx, "RotaryEmbedding", kRotaryOpset);
  step.SetInt("interleaved", ctx.Int("interleaved", 0));
  step.SetInt("num_heads", t.heads);
  step.SetInt("rotary_embedding_dim", ctx.Int("rotary_embedding_dim", 0) != 0
                                          ? ctx.Int("rotary_embedding_dim", 0)
                                          : 2 * in[2].shape[1]);
  return step;
}

Inferred InferTurned(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Turned t, ReadTurned(ctx, in));
  return InnerTurn(ctx, t, in).Infer(InnerInputs(t, in));
}

Made MakeTurned(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Turned t, ReadTurned(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> made, InnerTurn(ctx, t, in).Make(InnerInputs(t, in)));
  ScratchParts parts;
  const std::uint64_t ids = parts.Add(static_cast<std::uint64_t>(t.batch * t.rows) * sizeof(std::int64_t));
  const std::uint64_t inner = parts.Add(made->scratch().count());
  return MakeKernel(
      [t, ids, inner, kernel = std::shared_ptr<const Kernel>(std::move(made))](In in, Out out,
                                                                               std::byte* scratch) {
        auto* const places = reinterpret_cast<std::int64_t*>(scratch + ids);
        // Unsigned: the position comes with the request, and the kernel judges what it became.
        for (std::int64_t i = 0; i < t.batch * t.rows; ++i)
          places[i] = static_cast<std::int64_t>(
              static_cast<std::uint64_t>(Data<std::int64_t>(in[1])[t.first_only ? 0 : i]) +
              static_cast<std::uint64_t>(t.first_only ? i % t.rows : 0));
        const std::array<TensorView, 4> turned = {in[0], in[2], in[3],
                                                  TensorView{proto::INT64, {t.batch, t.rows}, scratch + ids}};
        return kernel->Run(turned, out, scratch + inner);
      },
      parts.size());
}

constexpr Operator kOperators[] = {
    {.name = "com.microsoft.RotaryEmbedding",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferTurned,
     .make = &FloatWidened<&MakeTurned>,
     .types = kTypes},
};

}  // namespace

std::span<const Operator> FusedRotaryOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
