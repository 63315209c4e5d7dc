#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/status.hpp"
#include "gateway/json_text.hpp"
#include "gateway/tensor_json.hpp"
#include "gateway/tensor_type.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

// Room for one number and its comma: the longest is a double such as -2.2250738585072014e-308.
constexpr std::size_t kNumberRoom = 32;

template <typename T>
char* WriteNumber(char* at, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) {
      const std::string_view name = std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
      return std::copy(name.begin(), name.end(), at);
    }
    char* const end = std::to_chars(at, at + kNumberRoom, value).ptr;
    // "1.0", not "1": readers that take their types from the text see a float.
    if (std::none_of(at, end, [](char c) { return c == '.' || c == 'e'; })) {
      *end = '.';
      end[1] = '0';
      return end + 2;
    }
    return end;
  } else {
    return std::to_chars(at, at + kNumberRoom, value).ptr;
  }
}

template <typename T>
void AppendNumbers(std::string& out, std::span<const std::byte> data) {
  constexpr std::size_t kChunk = 256;
  std::array<char, kChunk * kNumberRoom> text;
  for (std::size_t i = 0; i < data.size();) {
    char* at = text.data();
    for (std::size_t n = 0; n < kChunk && i < data.size(); ++n, i += sizeof(T)) {
      T value;
      std::memcpy(&value, data.data() + i, sizeof(T));
      if (i > 0) *at++ = ',';
      at = WriteNumber(at, value);
    }
    out.append(text.data(), at);
  }
}

void AppendBools(std::string& out, std::span<const std::byte> data) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (i > 0) out += ',';
    out += data[i] == std::byte{0} ? "false" : "true";
  }
}

absl::Status AppendStrings(std::string& out, const proto::TensorSpec& spec, std::span<const std::byte> data) {
  for (std::size_t at = 0; at < data.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, data.data() + at, sizeof(length));
    if (at > 0) out += ',';
    const std::string_view text(reinterpret_cast<const char*>(data.data()) + at + sizeof(length), length);
    if (!AppendJsonString(out, text)) {
      return absl::InvalidArgumentError(Cat("output '", spec.name(),
                                            "' holds a string that is not valid UTF-8 and ",
                                            "so has no JSON form; ask for it with \"binary_data\": true"));
    }
    at += sizeof(length) + length;
  }
  return absl::OkStatus();
}

absl::Status AppendElements(std::string& out, const proto::TensorSpec& spec,
                            std::span<const std::byte> data) {
  switch (spec.type()) {
    case proto::BOOL:
      return AppendBools(out, data), absl::OkStatus();
    case proto::UINT8:
      return AppendNumbers<std::uint8_t>(out, data), absl::OkStatus();
    case proto::UINT16:
      return AppendNumbers<std::uint16_t>(out, data), absl::OkStatus();
    case proto::UINT32:
      return AppendNumbers<std::uint32_t>(out, data), absl::OkStatus();
    case proto::UINT64:
      return AppendNumbers<std::uint64_t>(out, data), absl::OkStatus();
    case proto::INT8:
      return AppendNumbers<std::int8_t>(out, data), absl::OkStatus();
    case proto::INT16:
      return AppendNumbers<std::int16_t>(out, data), absl::OkStatus();
    case proto::INT32:
      return AppendNumbers<std::int32_t>(out, data), absl::OkStatus();
    case proto::INT64:
      return AppendNumbers<std::int64_t>(out, data), absl::OkStatus();
    case proto::FP32:
      return AppendNumbers<float>(out, data), absl::OkStatus();
    case proto::FP64:
      return AppendNumbers<double>(out, data), absl::OkStatus();
    case proto::BYTES:
      return AppendStrings(out, spec, data);
    default:
      return absl::InvalidArgumentError(Cat("output '", spec.name(), "': ", TypeName(spec.type()),
                                            " has no JSON form; ask for it with \"binary_data\": true"));
  }
}

}  // namespace

absl::Status AppendJsonTensor(std::string& out, const proto::TensorSpec& spec,
                              std::span<const std::byte> data) {
  if (absl::Status status = CheckRawTensor(spec, data); !status.ok()) {
    return absl::InternalError(Cat("the function answered badly: ", Message(status)));
  }
  out += '[';
  TROUPE_RETURN_IF_ERROR(AppendElements(out, spec, data));
  out += ']';
  return absl::OkStatus();
}

}  // namespace troupe::gateway
