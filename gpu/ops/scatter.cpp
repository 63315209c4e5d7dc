// ScatterElements (and its old name Scatter), ScatterND: a copy of the data with some elements replaced or
// combined.
#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gpu/ops/binary_rows.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/indices.hpp"

namespace troupe::gpu {
namespace {

struct NamedReduction {
  std::string_view name;
  std::string_view row;
  int since;  // opset
};
constexpr NamedReduction kReductions[] = {
    {"add", "Add", 16}, {"mul", "Mul", 16}, {"max", "Max", 18}, {"min", "Min", 18}};

// Null: the update replaces the element.
absl::StatusOr<RowFunction> Reduction(const StepContext& ctx, proto::DataType type) {
  const std::string name = ctx.Text("reduction", "none");
  if (name == "none") return nullptr;
  const auto* const known = std::ranges::find(kReductions, name, &NamedReduction::name);
  if (known == std::end(kReductions) || ctx.opset < known->since) {
    return ctx.Error(absl::StrCat("unknown reduction '", name, "' at opset ", ctx.opset));
  }
  RowFunction row = FindArithmeticRow(known->row, type);
  if (row == nullptr) return ctx.Error(absl::StrCat("no reduction on ", proto::DataType_Name(type)));
  return row;
}

void Combine(RowFunction row, std::byte* to, const std::byte* update, std::size_t block, std::size_t size) {
  if (row == nullptr) return CopyBytes(to, update, block);
  row(Row{static_cast<std::int64_t>(block / size), {to, update}, {1, 1}, to, nullptr});
}

absl::Status CheckReduction(const StepContext& ctx, Infos in) {
  const std::string name = ctx.Text("reduction", "none");
  if (name == "none") return absl::OkStatus();
  if (!Has(kNumberTypes, in[0].type)) return ctx.Error("a reduction wants numbers");
  return Reduction(ctx, WideType(in[0].type)).status();
}

Inferred InferScatterElements(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kAnyTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kIndexTypes));
  TROUPE_RETURN_IF_ERROR(CheckReduction(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  TROUPE_RETURN_IF_ERROR(CheckIndexBox(ctx, in[0].shape, in[1].shape, axis));
  if (in[2].shape != in[1].shape || in[2].type != in[0].type) {
    return ctx.Error("the updates must have the indices' shape and the data's type");
  }
  return OneValue(ctx, in[0].type, in[0].shape);
}

Made MakeScatterElementsOf(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  TROUPE_ASSIGN_OR_RETURN(const RowFunction row, Reduction(ctx, in[0].type));
  const std::size_t size = CellSize(in[0].type);
  return MakeKernel(
      [=, walk = IndexBoxWalk(in[0].shape, in[1].shape, axis), step = ctx.step](In in, Out out, std::byte*) {
        CopyBytes(out[0].data, in[0].data, BytesOf(out[0]));
        return walk.Run(step, in[1], [&](std::int64_t place, std::int64_t target) {
          Combine(row, out[0].data + static_cast<std::size_t>(target) * size,
                  in[2].data + static_cast<std::size_t>(place) * size, size, size);
        });
      },
      Bytes(0), 0);
}

Inferred InferScatterND(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kAnyTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kIndexTypes));
  TROUPE_RETURN_IF_ERROR(CheckReduction(ctx, in));
  const Shape& data = in[0].shape;
  const Shape& indices = in[1].shape;
  if (indices.empty() || indices.back() > static_cast<std::int64_t>(data.size())) {
    return ctx.Error(absl::StrCat("indices ", FormatShape(indices), " do not fit data ", FormatShape(data)));
  }
  Shape expected(indices.begin(), indices.end() - 1);
  expected.insert(expected.end(), data.begin() + indices.back(), data.end());
  if (in[2].shape != expected || in[2].type != in[0].type) {
    return ctx.Error(
        absl::StrCat("updates are ", FormatShape(in[2].shape), ", wants ", FormatShape(expected)));
  }
  return OneValue(ctx, in[0].type, data);
}

Made MakeScatterNDOf(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const RowFunction row, Reduction(ctx, in[0].type));
  const auto depth = static_cast<std::size_t>(in[1].shape.back());
  const std::span<const std::int64_t> shape = in[0].shape;
  const Shape dims(shape.begin(), shape.begin() + depth);
  const std::size_t size = CellSize(in[0].type);
  const std::size_t block = static_cast<std::size_t>(Product(shape.subspan(depth))) * size;
  return MakeKernel(
      [=, step = ctx.step](In in, Out out, std::byte*) -> absl::Status {
        CopyBytes(out[0].data, in[0].data, BytesOf(out[0]));
        const std::int64_t tuples = Product(std::span(in[1].shape).first(in[1].shape.size() - 1));
        for (std::int64_t t = 0; t < tuples; ++t) {
          TROUPE_ASSIGN_OR_RETURN(const std::int64_t place, TupleOffset(step, in[1], t, dims));
          Combine(row, out[0].data + static_cast<std::size_t>(place) * block,
                  in[2].data + static_cast<std::size_t>(t) * block, block, size);
        }
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

// Only a reduction computes; without one the elements' type does not matter.
template <MakeFunction make>
Made MakeScatter(const StepContext& ctx, Infos in, Infos out) {
  if (ctx.Text("reduction", "none") == "none") return make(ctx, in, out);
  const proto::DataType wide = WideType(in[0].type);
  return MakeConverted(make, ctx, in, out, std::array{wide, in[1].type, wide}, std::array{wide});
}

constexpr Operator kOperators[] = {
    {.name = "ScatterElements",
     .min_opset = 11,
     .max_opset = kNewestOpset,
     .infer = &InferScatterElements,
     .make = &MakeScatter<&MakeScatterElementsOf>,
     .types = kAnyTypes},
    {.name = "Scatter",
     .min_opset = 9,
     .max_opset = 17,
     .infer = &InferScatterElements,
     .make = &MakeScatter<&MakeScatterElementsOf>,
     .types = kAnyTypes},
    {.name = "ScatterND",
     .min_opset = 11,
     .max_opset = kNewestOpset,
     .infer = &InferScatterND,
     .make = &MakeScatter<&MakeScatterNDOf>,
     .types = kAnyTypes},
};

}  // namespace

std::span<const Operator> ScatterOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
