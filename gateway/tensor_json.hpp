// Tensor data between JSON and the bytes of a tensor.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gateway/json_cursor.hpp"
#include "proto/tensor.pb.h"

namespace troupe::gateway {

// How many bytes the tensor takes. The cursor stands at the value of "data" and comes back to it: only BYTES
// are read to know it. FP16 and BF16 have no JSON form and are refused.
[[nodiscard]] absl::StatusOr<Bytes> MeasureJsonTensor(JsonCursor& cursor, const proto::TensorSpec& spec);

// Reads the value of "data" into `out`, which has the size that MeasureJsonTensor told. The elements come in
// one flat array, or nested exactly as the shape says. Integers and BOOL (true, false, 0, 1) must fit their
// type; floats round to nearest, and may be NaN, Infinity or -Infinity, but a finite number beyond the type's
// range is refused.
[[nodiscard]] absl::Status ReadJsonTensor(JsonCursor& cursor, const proto::TensorSpec& spec,
                                          std::span<std::byte> out);

// Appends the elements as one flat JSON array. Floats are written with the fewest digits that read back the
// same, and NaN, Infinity, -Infinity by those names (as Triton and Python's json module do). An error for
// types without a JSON form, for BYTES that are no UTF-8, and when `data` is not a tensor of `spec`.
[[nodiscard]] absl::Status AppendJsonTensor(std::string& out, const proto::TensorSpec& spec,
                                            std::span<const std::byte> data);

}  // namespace troupe::gateway
