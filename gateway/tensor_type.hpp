// Names and sizes of the Open Inference Protocol's element types, and the arithmetic of shapes that came from
// outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/element_size.hpp"

namespace troupe::gateway {

// "FP32"; "UNSPECIFIED" for what has no name.
[[nodiscard]] std::string_view TypeName(proto::DataType type);
[[nodiscard]] std::optional<proto::DataType> TypeFromName(std::string_view name);
// Every name, for error messages.
[[nodiscard]] std::string_view TypeNames();
// FP16 and BF16 have no JSON form.
[[nodiscard]] bool HasJsonForm(proto::DataType type);

// Product of the dimensions; 1 for a scalar. An error when a dimension is negative or the product does not
// fit.
[[nodiscard]] absl::StatusOr<std::uint64_t> ElementCount(const proto::TensorSpec& spec);
// Bytes of a tensor of fixed-size elements. Not for BYTES.
[[nodiscard]] absl::StatusOr<Bytes> TensorSize(const proto::TensorSpec& spec);
// "[1,3,224,224]".
[[nodiscard]] std::string ShapeText(const proto::TensorSpec& spec);

// Checks what cannot be trusted in raw tensor bytes: the total size, the length prefixes of BYTES, and that
// each BOOL is 0 or 1.
[[nodiscard]] absl::Status CheckRawTensor(const proto::TensorSpec& spec, std::span<const std::byte> data);

// The function's declared input or output against what a client sent: same type, same rank, same sizes where
// declared.
[[nodiscard]] absl::Status CheckAgainstDeclared(const proto::TensorSpec& declared,
                                                const proto::TensorSpec& sent);

}  // namespace troupe::gateway
