// LAYOUT: how the elements of an FP32 tensor lie in device memory when they do not lie row-major. A layout is
// an opaque string (a descriptor in a fixed little-endian form); the empty string means row-major. Layouts of
// packed weights come from a file: nothing in them is trusted before it is checked. Weights may be BF16 in theirs.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// The device kind, instruction set and packer version that layouts are valid for: "cpu-avx512/1".
[[nodiscard]] std::string DeviceTarget();

// Whether products in BF16 are faster here than in FP32.
[[nodiscard]] bool ComputesBf16();

// Bytes that a tensor in this (non-empty) layout takes, padding included; an error for a malformed layout.
absl::StatusOr<Bytes> LayoutBytes(std::string_view layout);
// Bytes of a value: by its layout, or row-major.
absl::StatusOr<Bytes> ValueBytes(const ValueInfo& value);

// A kernel with one input and one output of shape `shape` (FP32) that moves it between two layouts.
absl::StatusOr<std::unique_ptr<Kernel>> MakeReorder(const Shape& shape, const std::string& from,
                                                    const std::string& to);

// The entry that runs `name` on FP32 activations in device layouts without leaving them; null when there is
// none. Its make may answer Unimplemented for some shapes: then the operator's own entry runs on row-major
// data. infer is unused.
[[nodiscard]] const Operator* FindLayoutOperator(std::string_view name);

}  // namespace troupe::gpu
