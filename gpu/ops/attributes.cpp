#include "gpu/ops/attributes.hpp"

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/convert.hpp"

namespace troupe::gpu {

std::span<const std::int64_t> IntList(const StepContext& ctx, const std::string& name) {
  const proto::Attribute* attribute = ctx.Find(name);
  if (attribute == nullptr || !attribute->has_ints()) return {};
  const auto& values = attribute->ints().values();
  return {values.data(), static_cast<std::size_t>(values.size())};
}

std::span<const float> FloatList(const StepContext& ctx, const std::string& name) {
  const proto::Attribute* attribute = ctx.Find(name);
  if (attribute == nullptr || !attribute->has_floats()) return {};
  const auto& values = attribute->floats().values();
  return {values.data(), static_cast<std::size_t>(values.size())};
}

std::span<const std::string* const> TextList(const StepContext& ctx, const std::string& name) {
  const proto::Attribute* attribute = ctx.Find(name);
  if (attribute == nullptr || !attribute->has_strings()) return {};
  const auto& values = attribute->strings().values();
  return {values.data(), static_cast<std::size_t>(values.size())};
}

absl::StatusOr<std::vector<double>> TensorList(const StepContext& ctx, const std::string& name) {
  const proto::Attribute* attribute = ctx.Find(name);
  if (attribute == nullptr) return std::vector<double>();
  const std::string where = absl::StrCat("attribute '", name, "'");
  if (!attribute->has_tensor()) return ctx.Error(absl::StrCat(where, " must be a tensor"));
  const proto::TensorSpec& spec = attribute->tensor().spec();
  const std::string& data = attribute->tensor().data();
  if (ElementSize(spec.type()) == 0 || spec.shape_size() > 1)
    return ctx.Error(absl::StrCat(where, " must be a list of numbers, is ", proto::DataType_Name(spec.type()),
                                  " of rank ", spec.shape_size()));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t count,
                          CountElements(Shape(spec.shape().begin(), spec.shape().end())));
  if (data.size() != static_cast<std::size_t>(count) * ElementSize(spec.type()))
    return ctx.Error(
        absl::StrCat(where, " has ", data.size(), " bytes, its shape asks for ", count, " elements"));
  std::vector<double> values(static_cast<std::size_t>(count));
  if (!values.empty())
    ConvertElements(spec.type(), reinterpret_cast<const std::byte*>(data.data()), proto::FP64,
                    reinterpret_cast<std::byte*>(values.data()), count);
  return values;
}

absl::StatusOr<std::vector<double>> NumberList(const StepContext& ctx, const std::string& name) {
  const std::string tensor = absl::StrCat(name, "_as_tensor");
  const auto floats = FloatList(ctx, name);
  if (ctx.Find(tensor) == nullptr) return std::vector<double>(floats.begin(), floats.end());
  if (!floats.empty())
    return ctx.Error(absl::StrCat("attributes '", name, "' and '", tensor, "' are both given"));
  return TensorList(ctx, tensor);
}

proto::DataType TensorTypeOf(const StepContext& ctx, const std::string& name) {
  const proto::Attribute* attribute = ctx.Find(name);
  if (attribute == nullptr || !attribute->has_tensor()) return proto::DATA_TYPE_UNSPECIFIED;
  return attribute->tensor().spec().type();
}

absl::Status WantLength(const StepContext& ctx, const std::string& name, std::size_t have, std::size_t want) {
  if (have == want) return absl::OkStatus();
  return ctx.Error(absl::StrCat("attribute '", name, "' has ", have, " values, expected ", want));
}

}  // namespace troupe::gpu
