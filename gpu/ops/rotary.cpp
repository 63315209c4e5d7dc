// RotaryEmbedding (opset 23): turns pairs of elements of each head by an angle that follows from the position.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/indices.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

struct Rotation {
  std::int64_t batch = 0, rows = 0, heads = 0, size = 0;
  std::int64_t half = 0;  // pairs that turn; the elements behind them stay
  std::int64_t positions =
      0;              // rows of the tables that a position chooses from; 0: a row of their own for each
  bool flat = false;  // [batch, rows, heads * size], else [batch, heads, rows, size]
  bool interleaved = false;  // pairs are neighbours, else half the turned part apart
};

absl::Status ReadTurned(const StepContext& ctx, const Shape& x, Rotation& r) {
  r.flat = x.size() == 3;
  r.heads = r.flat ? ctx.Int("num_heads", 0) : 1;
  if ((x.size() != 3 && x.size() != 4) || r.heads < 1 || x.back() % r.heads != 0) {
    return ctx.Error(
        absl::StrCat("input ", FormatShape(x),
                     " is neither [batch, heads, length, size] nor [batch, length, heads * size] of "
                     "num_heads ",
                     r.heads));
  }
  r.batch = x[0];
  r.rows = x[r.flat ? 1 : 2];
  if (!r.flat) r.heads = x[1];
  r.size = r.flat ? x[2] / r.heads : x[3];
  const std::int64_t asked = ctx.Int("rotary_embedding_dim", 0);
  const std::int64_t turned = asked == 0 ? r.size : asked;
  if (turned < 0 || turned > r.size || turned % 2 != 0) {
    return ctx.Error(absl::StrCat(turned, " of ", r.size, " elements of a head cannot turn in pairs"));
  }
  r.half = turned / 2;
  r.interleaved = ctx.Int("interleaved", 0) != 0;
  return absl::OkStatus();
}

absl::StatusOr<Rotation> ReadRotation(const StepContext& ctx, Infos in) {
  Rotation r;
  TROUPE_RETURN_IF_ERROR(ReadTurned(ctx, in[0].shape, r));
  const Shape& table = in[1].shape;
  if (Present(in, 3)) {
    if (in[3].shape != Shape{r.batch, r.rows} || !Has(kIndexTypes, in[3].type))
      return ctx.Error(absl::StrCat("position_ids ", FormatShape(in[3].shape), " must be integers [", r.batch,
                                    ",", r.rows, "]"));
    if (table.size() == 2) r.positions = table[0];
  }
  const Shape wanted = Present(in, 3) ? Shape{r.positions, r.half} : Shape{r.batch, r.rows, r.half};
  if (table != wanted || in[2].shape != table) {
    return ctx.Error(absl::StrCat("cos_cache ", FormatShape(table), " and sin_cache ",
                                  FormatShape(in[2].shape), " must have shape ", FormatShape(wanted)));
  }
  return r;
}

Inferred InferRotary(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 4, kFloatTypes));
  for (std::size_t i = 1; i < 3; ++i)
    if (in[i].type != in[0].type) return ctx.Error("the tables must have the input's type");
  TROUPE_RETURN_IF_ERROR(ReadRotation(ctx, in).status());
  return OneValue(ctx, in[0].type, in[0].shape);
}

template <class T>
void Turn(const Rotation& r, const T* x, const T* cos, const T* sin, T* y) {
  for (std::int64_t i = 0; i < r.half; ++i) {
    const std::int64_t a = r.interleaved ? 2 * i : i;
    const std::int64_t b = r.interleaved ? 2 * i + 1 : i + r.half;
    const T first = x[a];
    const T second = x[b];
    y[a] = cos[i] * first - sin[i] * second;
    y[b] = sin[i] * first + cos[i] * second;
  }
  if (y != x) std::copy_n(x + 2 * r.half, r.size - 2 * r.half, y + 2 * r.half);
}

template <class T>
absl::Status TurnAll(const Rotation& r, const proto::Step& step, In in, Out out) {
  for (std::int64_t row = 0; row < r.batch * r.rows; ++row) {
    std::int64_t place = row;
    if (Present(in, 3)) {
      // A position counts from the beginning; none counts from the end.
      place = IntAt(in[3].type, in[3].data, row);
      if (place < 0 || place >= r.positions) return IndexError(step, place, r.positions);
    }
    const T* cos = Data<T>(in[1]) + place * r.half;
    const T* sin = Data<T>(in[2]) + place * r.half;
    for (std::int64_t h = 0; h < r.heads; ++h) {
      const std::int64_t at =
          r.flat ? row * r.heads + h : (row / r.rows * r.heads + h) * r.rows + row % r.rows;
      Turn<T>(r, Data<T>(in[0]) + at * r.size, cos, sin, MutableData<T>(out[0]) + at * r.size);
    }
  }
  return absl::OkStatus();
}

Made MakeRotary(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Rotation rotation, ReadRotation(ctx, in));
  return MakeKernel(
      [rotation, step = ctx.step](In in, Out out, std::byte*) {
        return in[0].type == proto::FP64 ? TurnAll<double>(rotation, step, in, out)
                                         : TurnAll<float>(rotation, step, in, out);
      },
      Bytes(0), 0);
}

constexpr Operator kOperators[] = {
    {.name = "RotaryEmbedding",
     .min_opset = 23,
     .max_opset = kNewestOpset,
     .infer = &InferRotary,
     .make = &FloatWidened<&MakeRotary>,
     .types = kFloatTypes},
};

}  // namespace

std::span<const Operator> RotaryOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
