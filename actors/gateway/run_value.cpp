#include "actors/gateway/run_value.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "cluster/workflow_schedule.hpp"

namespace troupe::actors {

namespace {

absl::StatusOr<RunValue> JoinBytes(const std::vector<RunValue>& values, std::uint32_t dimension) {
  std::vector<proto::TensorSpec> specs;
  std::vector<std::string_view> parts;
  for (const RunValue& value : values) {
    specs.push_back(value.spec);
    parts.push_back(*value.bytes);
  }
  TROUPE_ASSIGN_OR_RETURN(auto spec, cluster::ConcatenatedSpec(specs, dimension));
  TROUPE_ASSIGN_OR_RETURN(auto bytes, cluster::Concatenate(specs, parts, dimension));
  return RunValue{std::move(spec), std::make_shared<const std::string>(std::move(bytes))};
}

// Neighbours whose bytes are here become one part, and what has no row none: a reader is told of as few as there can be.
absl::StatusOr<std::vector<RunValue>> PartsOf(const std::vector<RunValue>& values) {
  std::vector<RunValue> parts;
  std::vector<RunValue> here;
  const auto close = [&]() -> absl::Status {
    if (here.empty()) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(auto part, JoinBytes(std::exchange(here, {}), 0));
    if (!part.bytes->empty()) parts.push_back(std::move(part));
    return absl::OkStatus();
  };
  for (const RunValue& value : values) {
    if (!value.kept) {
      here.push_back(value);
      continue;
    }
    TROUPE_RETURN_IF_ERROR(close());
    parts.push_back(value);
  }
  TROUPE_RETURN_IF_ERROR(close());
  return parts;
}

}  // namespace

std::uint64_t RunValue::Size() const {
  if (kept) return kept->length();
  if (bytes != nullptr) return bytes->size();
  std::uint64_t size = 0;
  for (const RunValue& part : parts) size += part.Size();
  return size;
}

std::uint64_t RunValue::KeptBytes() const {
  std::uint64_t size = kept ? kept->length() : 0;
  for (const RunValue& part : parts) size += part.KeptBytes();
  return size;
}

void RunValue::Release() {
  kept.reset();
  holder.reset();
  parts.clear();
}

proto::StoredTensor KeptPlaceOf(const RunValue& value) {
  proto::StoredTensor stored;
  *stored.mutable_spec() = value.spec;
  if (value.kept) {
    *stored.mutable_kept() = *value.kept;
    return stored;
  }
  const auto first = std::ranges::find_if(value.parts, [](const RunValue& part) { return part.IsKept(); });
  TROUPE_CHECK(first != value.parts.end(), "no part of a value in parts is kept by a node");
  *stored.mutable_kept() = *first->kept;
  stored.mutable_kept()->set_length(value.Size());
  stored.set_kept_parts(static_cast<std::uint32_t>(value.parts.size()));
  return stored;
}

RunValue RowOf(const RunValue& value, std::uint64_t row, std::uint64_t bytes, proto::TensorSpec spec) {
  const RunValue* from = &value;
  for (const RunValue& part : value.parts) {
    from = &part;
    const auto rows = static_cast<std::uint64_t>(part.spec.shape(0));
    if (row < rows) break;
    row -= rows;
  }
  RunValue slice{.spec = std::move(spec), .bytes = nullptr, .kept = from->kept, .holder = from->holder};
  if (!slice.kept) {
    slice.bytes = std::make_shared<const std::string>(from->bytes->substr(row * bytes, bytes));
    return slice;
  }
  slice.kept->set_offset(slice.kept->offset() + row * bytes);
  slice.kept->set_length(bytes);
  return slice;
}

absl::StatusOr<RunValue> JoinValues(const std::vector<RunValue>& values, std::uint32_t dimension) {
  const bool here = std::ranges::none_of(values, [](const RunValue& value) { return value.IsKept(); });
  if (here) return JoinBytes(values, dimension);
  if (dimension != 0)
    return absl::InternalError(
        absl::StrCat("outputs that are joined along dimension ", dimension, " were kept by nodes"));
  std::vector<proto::TensorSpec> specs;
  for (const RunValue& value : values) {
    TROUPE_RETURN_IF_ERROR(cluster::CheckBytes(value.spec, value.Size()));
    specs.push_back(value.spec);
  }
  RunValue joined;
  TROUPE_ASSIGN_OR_RETURN(joined.spec, cluster::ConcatenatedSpec(specs, 0));
  TROUPE_ASSIGN_OR_RETURN(joined.parts, PartsOf(values));
  if (joined.parts.size() > 1) return joined;
  auto one = std::move(joined.parts.front());
  one.spec = std::move(joined.spec);
  return one;
}

}  // namespace troupe::actors
