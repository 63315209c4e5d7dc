// TENSORS as the shell holds them: proto::Tensor with its bytes inline, little-endian and row-major, BYTES as
// the protocol lays them out. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/element_size.hpp"

namespace troupe::shell {

// What all inputs of a request may take together: they travel inside of one message.
inline constexpr std::uint64_t kMostInputBytes = std::uint64_t{16} << 20;
// Text and protobuf take more room than the tensor in them.
inline constexpr std::uint64_t kMostFileBytes = kMostInputBytes * 4;
inline constexpr std::size_t kMostDimensions = 32;

// "FP32"; and back, for the names of the Open Inference Protocol.
[[nodiscard]] std::string TypeName(proto::DataType type);
[[nodiscard]] std::optional<proto::DataType> TypeOf(std::string_view name);

// "[1,3,-1]", "FP32 [1,3,-1]".
[[nodiscard]] std::string DescribeShape(const google::protobuf::RepeatedField<std::int64_t>& shape);
[[nodiscard]] std::string Describe(const proto::TensorSpec& spec);

// Elements of a concrete shape. An error for negative sizes, too many dimensions, and more than fits into
// kMostInputBytes even at one byte each.
[[nodiscard]] absl::StatusOr<std::uint64_t> ElementCount(const std::vector<std::int64_t>& shape);
// A tensor whose data has exactly the bytes that its type and shape ask for (not checked for BYTES).
[[nodiscard]] absl::StatusOr<proto::Tensor> MakeTensor(proto::DataType type,
                                                       const std::vector<std::int64_t>& shape,
                                                       std::string data);

// Whether a tensor fits a declaration (-1: any size); else what was expected and what was found.
[[nodiscard]] absl::Status CheckAgainst(const proto::TensorSpec& declared, const proto::TensorSpec& found);

// One BYTES element in front of what follows.
void AppendBytesElement(std::string& data, std::string_view element);
// The elements of a BYTES tensor; nothing when its lengths do not add up.
[[nodiscard]] std::optional<std::vector<std::string_view>> BytesElements(std::string_view data);

[[nodiscard]] float HalfToFloat(std::uint16_t half);
[[nodiscard]] float Bfloat16ToFloat(std::uint16_t bits);
// Rounds to nearest even; beyond the range: infinity.
[[nodiscard]] std::uint16_t FloatToHalf(float value);
[[nodiscard]] std::uint16_t FloatToBfloat16(float value);

}  // namespace troupe::shell
