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
  std::optional<proto::StoredTensor> stored{};  // where the log has the bytes of a kept value, too
  // Instead of bytes and kept: several, which follow each other along the first dimension. Nodes keep at least one of them,
  // and none has parts itself.
  std::vector<RunValue> parts{};

  [[nodiscard]] bool IsKept() const { return kept || !parts.empty(); }
  [[nodiscard]] bool OnlyInLog() const { return bytes == nullptr && !IsKept(); }
  // The value's bytes, wherever they are; 0 when only the log has it.
  [[nodiscard]] std::uint64_t Size() const;
  // The bytes of it that nodes keep.
  [[nodiscard]] std::uint64_t KeptBytes() const;
  // Gives up what nodes keep of it: a node releases that when no other value refers to it.
  void Release();
};

// What the log records of a value that nodes keep: where its first kept part is, and how many parts there are.
[[nodiscard]] proto::StoredTensor KeptPlaceOf(const RunValue& value);

// A value with one row of the first dimension, number `row`, and the description `spec`. Each row takes `bytes` bytes.
[[nodiscard]] RunValue RowOf(const RunValue& value, std::uint64_t row, std::uint64_t bytes,
                             proto::TensorSpec spec);

// One value from those of calls, along a dimension: as bytes, if no node keeps any of them, else in parts. InvalidArgument:
// they do not go together.
[[nodiscard]] absl::StatusOr<RunValue> JoinValues(const std::vector<RunValue>& values,
                                                  std::uint32_t dimension);

}  // namespace troupe::actors
