#include "gpu/ops/op_support.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"

namespace troupe::gpu {

bool Present(Infos in, std::size_t index) {
  return index < in.size() && !in[index].absent();
}

absl::Status CheckInputs(const StepContext& ctx, Infos in, std::size_t least, std::size_t most,
                         TypeSet types) {
  if (in.size() < least || in.size() > most) {
    return ctx.Error(absl::StrCat("has ", in.size(), " inputs, wants ", least, " to ", most));
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].absent()) {
      if (i < least) return ctx.Error(absl::StrCat("input ", i, " is required"));
      continue;
    }
    if (auto count = CountElements(in[i].shape); !count.ok()) {
      return ctx.Error(absl::StrCat("input ", i, ": ", count.status().message()));
    }
  }
  return least == 0 ? absl::OkStatus() : CheckType(ctx, in, 0, types);
}

absl::Status CheckType(const StepContext& ctx, Infos in, std::size_t index, TypeSet types) {
  if (!Present(in, index) || Has(types, in[index].type)) return absl::OkStatus();
  return ctx.Error(absl::StrCat("input ", index, " has type ", proto::DataType_Name(in[index].type),
                                ", not supported here"));
}

absl::Status CheckAttributes(const StepContext& ctx, std::initializer_list<std::string_view> known) {
  for (const proto::Attribute& attribute : ctx.step.attributes()) {
    if (std::ranges::find(known, attribute.name()) != known.end()) continue;
    return ctx.Error(
        absl::StrCat("attribute '", attribute.name(), "' is not supported; export the model without it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::int64_t> NormalizeAxis(const StepContext& ctx, std::int64_t axis, std::size_t rank) {
  const auto size = static_cast<std::int64_t>(rank);
  if (axis < -size || axis >= size) {
    return ctx.Error(absl::StrCat("axis ", axis, " is outside of a tensor of rank ", rank));
  }
  return axis < 0 ? axis + size : axis;
}

absl::StatusOr<Shape> NormalizeAxes(const StepContext& ctx, Shape axes, std::size_t rank) {
  for (std::int64_t& axis : axes) {
    TROUPE_ASSIGN_OR_RETURN(axis, NormalizeAxis(ctx, axis, rank));
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) return ctx.Error("an axis is given twice");
  return axes;
}

std::int64_t IntAt(proto::DataType type, const std::byte* data, std::int64_t i) {
  if (type == proto::INT32) return reinterpret_cast<const std::int32_t*>(data)[i];
  return reinterpret_cast<const std::int64_t*>(data)[i];
}

Shape ReadInts(proto::DataType type, const std::byte* data, std::int64_t count) {
  Shape values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = IntAt(type, data, i);
  return values;
}

absl::StatusOr<std::optional<Shape>> KnownInts(const StepContext& ctx, Infos in, std::size_t index) {
  const ValueInfo& info = in[index];
  if (!Has(kIndexTypes, info.type) || info.shape.size() > 1) {
    return ctx.Error(absl::StrCat("input ", index, " must be a list of integers, is ",
                                  proto::DataType_Name(info.type), FormatShape(info.shape)));
  }
  if (info.elements() == 0) return std::optional(Shape());
  if (info.constant == nullptr || info.bounded) return std::optional<Shape>();
  return std::optional(ReadInts(info.type, info.constant, info.elements()));
}

absl::StatusOr<Shape> RequireInts(const StepContext& ctx, Infos in, std::size_t index, const char* what) {
  TROUPE_ASSIGN_OR_RETURN(std::optional<Shape> known, KnownInts(ctx, in, index));
  if (!known)
    return ctx.Error(absl::StrCat(what, " (input ", index, ") must be known when the plan is made"));
  return *std::move(known);
}

absl::StatusOr<std::vector<float>> RequireFloats(const StepContext& ctx, Infos in, std::size_t index,
                                                 const char* what) {
  const ValueInfo& info = in[index];
  if (!Has(kFloatTypes, info.type))
    return ctx.Error(absl::StrCat(what, " (input ", index, ") must be floats"));
  std::vector<float> values(static_cast<std::size_t>(info.elements()));
  if (values.empty()) return values;
  if (info.constant == nullptr) {
    return ctx.Error(absl::StrCat(what, " (input ", index, ") must be known when the plan is made"));
  }
  ConvertElements(info.type, info.constant, proto::FP32, reinterpret_cast<std::byte*>(values.data()),
                  info.elements());
  return values;
}

absl::StatusOr<ValueInfo> Value(const StepContext& ctx, proto::DataType type, Shape shape, bool bounded) {
  if (auto count = CountElements(shape); !count.ok()) {
    return ctx.Error(absl::StrCat("output: ", count.status().message()));
  }
  ValueInfo info;
  info.type = type;
  info.shape = std::move(shape);
  info.bounded = bounded;
  return info;
}

Inferred OneValue(const StepContext& ctx, proto::DataType type, Shape shape, bool bounded) {
  TROUPE_ASSIGN_OR_RETURN(ValueInfo value, Value(ctx, type, std::move(shape), bounded));
  return std::vector<ValueInfo>{std::move(value)};
}

std::int64_t Product(std::span<const std::int64_t> shape) {
  std::int64_t product = 1;
  for (std::int64_t dim : shape) product *= dim;
  return product;
}

Shape RowMajorStrides(std::span<const std::int64_t> shape) {
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

void CopyBytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, bytes);
}

proto::DataType FromOnnxType(std::int64_t type) {
  constexpr proto::DataType kTypes[] = {proto::DATA_TYPE_UNSPECIFIED,
                                        proto::FP32,
                                        proto::UINT8,
                                        proto::INT8,
                                        proto::UINT16,
                                        proto::INT16,
                                        proto::INT32,
                                        proto::INT64,
                                        proto::BYTES,
                                        proto::BOOL,
                                        proto::FP16,
                                        proto::FP64,
                                        proto::UINT32,
                                        proto::UINT64,
                                        proto::DATA_TYPE_UNSPECIFIED,
                                        proto::DATA_TYPE_UNSPECIFIED,
                                        proto::BF16};
  if (type < 0 || type >= static_cast<std::int64_t>(std::size(kTypes))) return proto::DATA_TYPE_UNSPECIFIED;
  return kTypes[type];
}

std::string OnnxTypeName(std::int64_t type) {
  static constexpr std::string_view kNames[] = {
      "UNDEFINED",      "FLOAT",      "UINT8",          "INT8",       "UINT16",   "INT16",
      "INT32",          "INT64",      "STRING",         "BOOL",       "FLOAT16",  "DOUBLE",
      "UINT32",         "UINT64",     "COMPLEX64",      "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN",
      "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4",      "INT4",     "FLOAT4E2M1",
  };
  if (type < 0 || type >= static_cast<std::int64_t>(std::size(kNames))) return absl::StrCat(type);
  return std::string(kNames[type]);
}

}  // namespace troupe::gpu
