// RUN VALUE: one tensor of a workflow run: its bytes, or where nodes keep them. What the calls of a for_each gave stays in
// parts, each where its call computed it, until a step reads them as one input (004 StreamBox, section 6.1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/request.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::actors {

//   bytes here, or kept by a node -(read for the last time there, or lost)-> in the log only, when that has it; else gone
struct RunValue {
  proto::TensorSpec spec;
  std::shared_ptr<const std::string> bytes;
  // Where a node keeps it, and what has it released there when the last value that refers to it is gone.
  std::optional<proto::KeptTensor> kept{};
  std::shared_ptr<const void> holder{};
  std::optional<proto::StoredTensor> stored{};  // of what is kept: where the log has its bytes too
  // Instead of bytes and kept: several, which follow each other along the first dimension. Nodes keep at least one of them,
  // and none has parts itself.
  std::vector<RunValue> parts{};

  [[nodiscard]] bool IsKept() const { return kept || !parts.empty(); }
  [[nodiscard]] bool OnlyInLog() const { return bytes == nullptr && !IsKept(); }
  // Wherever they are; 0 when only the log has it.
  [[nodiscard]] std::uint64_t Size() const;
  // By nodes.
  [[nodiscard]] std::uint64_t KeptBytes() const;
  // What nodes keep of it they keep no longer, as far as this value goes.
  void Release();
};

// Of this value as the log says where it is kept: its first part that a node keeps.
[[nodiscard]] proto::StoredTensor KeptPlaceOf(const RunValue& value);

// The row of this index of the first dimension, which takes `bytes` bytes: a part of what has it, under `spec`.
[[nodiscard]] RunValue RowOf(const RunValue& value, std::uint64_t row, std::uint64_t bytes,
                             proto::TensorSpec spec);

// One value from those of calls, along a dimension: as bytes, if no node keeps any of them, else in parts. InvalidArgument:
// they do not go together.
[[nodiscard]] absl::StatusOr<RunValue> JoinValues(const std::vector<RunValue>& values,
                                                  std::uint32_t dimension);

}  // namespace troupe::actors
