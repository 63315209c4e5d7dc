#include "gpu/ops/operator.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::gpu {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

}  // namespace

std::int64_t ValueInfo::elements() const {
  // A zero anywhere wins: the other dimensions alone may be more than 64 bits hold.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (std::int64_t dim : shape) count *= dim;
  return count;
}

const proto::Attribute* StepContext::Find(std::string_view name) const {
  for (const proto::Attribute& attribute : step.attributes()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

std::int64_t StepContext::Int(std::string_view name, std::int64_t fallback) const {
  const proto::Attribute* attribute = Find(name);
  return attribute != nullptr && attribute->has_i() ? attribute->i() : fallback;
}

float StepContext::Float(std::string_view name, float fallback) const {
  const proto::Attribute* attribute = Find(name);
  return attribute != nullptr && attribute->has_f() ? attribute->f() : fallback;
}

std::string StepContext::Text(std::string_view name, std::string_view fallback) const {
  const proto::Attribute* attribute = Find(name);
  return attribute != nullptr && attribute->has_s() ? attribute->s() : std::string(fallback);
}

std::vector<std::int64_t> StepContext::Ints(std::string_view name) const {
  const proto::Attribute* attribute = Find(name);
  if (attribute == nullptr || !attribute->has_ints()) return {};
  const auto& values = attribute->ints().values();
  return {values.begin(), values.end()};
}

absl::Status StepContext::Error(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(step.op(), " '", step.name(), "': ", std::string(what)));
}

absl::StatusOr<std::int64_t> CountElements(std::span<const std::int64_t> shape) {
  for (std::int64_t dim : shape) {
    if (dim < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", FormatShape(shape), " has a negative dimension"));
  }
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (std::int64_t dim : shape) {
    if (dim > kMaxElements / count) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", FormatShape(shape), " has more than 2^40 elements"));
    }
    count *= dim;
  }
  return count;
}

absl::StatusOr<Shape> BroadcastShapes(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  if (a.size() < b.size()) std::swap(a, b);
  Shape result(a.begin(), a.end());
  const std::size_t lead = a.size() - b.size();
  for (std::size_t i = 0; i < b.size(); ++i) {
    std::int64_t& dim = result[lead + i];
    if (dim == 1) {
      dim = b[i];
    } else if (b[i] != 1 && b[i] != dim) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes ", FormatShape(a), " and ", FormatShape(b), " do not broadcast"));
    }
  }
  return result;
}

std::string FormatShape(std::span<const std::int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

}  // namespace troupe::gpu
