#include "cluster/workflows/condition.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/element_size.hpp"

namespace troupe::cluster {

bool MayBeCondition(proto::DataType type) {
  return (type >= proto::UINT8 && type <= proto::INT64) || type == proto::BOOL;
}

absl::StatusOr<bool> IsNotZero(const std::string& value, const proto::TensorSpec& spec,
                               std::string_view bytes) {
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("'when' reads '", value, "', which is ",
                                                   proto::DataType_Name(spec.type()), " [",
                                                   absl::StrJoin(spec.shape(), ","), "]; ", what));
  };
  if (!MayBeCondition(spec.type())) return refuse("a condition is BOOL or an integer type");
  if (!std::all_of(spec.shape().begin(), spec.shape().end(), [](std::int64_t size) { return size == 1; }))
    return refuse("a condition has exactly one element");
  if (bytes.size() != ElementSize(spec.type()))
    return refuse(
        absl::StrCat("it has ", bytes.size(), " bytes, and ", ElementSize(spec.type()), " are expected"));
  return std::any_of(bytes.begin(), bytes.end(), [](char byte) { return byte != 0; });
}

}  // namespace troupe::cluster
