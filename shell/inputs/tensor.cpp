#include "shell/inputs/tensor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "base/units.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

std::string TypeName(proto::DataType type) {
  return proto::DataType_IsValid(type) ? proto::DataType_Name(type) : Cat("type ", static_cast<int>(type));
}

std::optional<proto::DataType> TypeOf(std::string_view name) {
  proto::DataType type{};
  if (!proto::DataType_Parse(std::string(name), &type) || type == proto::DATA_TYPE_UNSPECIFIED)
    return std::nullopt;
  return type;
}

std::string DescribeShape(const google::protobuf::RepeatedField<std::int64_t>& shape) {
  return Cat("[", absl::StrJoin(shape, ","), "]");
}

std::string Describe(const proto::TensorSpec& spec) {
  return Cat(TypeName(spec.type()), " ", DescribeShape(spec.shape()));
}

absl::StatusOr<std::uint64_t> ElementCount(const std::vector<std::int64_t>& shape) {
  if (shape.size() > kMostDimensions) {
    return absl::InvalidArgumentError(
        Cat("it has ", shape.size(), " dimensions; at most ", kMostDimensions, " are possible"));
  }
  std::uint64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return absl::InvalidArgumentError(Cat("its shape has a negative size, ", size));
    if (size == 0) {
      empty = true;
    } else if (count > kMostInputBytes / static_cast<std::uint64_t>(size)) {
      return absl::InvalidArgumentError(Cat("its shape [", absl::StrJoin(shape, ","), "] is larger than the ",
                                            FormatBytes(Bytes(kMostInputBytes)), " that a request may have"));
    } else {
      count *= static_cast<std::uint64_t>(size);
    }
  }
  return empty ? 0 : count;
}

absl::StatusOr<proto::Tensor> MakeTensor(proto::DataType type, const std::vector<std::int64_t>& shape,
                                         std::string data) {
  TROUPE_ASSIGN_OR_RETURN(const std::uint64_t count, ElementCount(shape));
  const std::size_t element = ElementSize(type);
  if (element != 0 && data.size() != count * element) {
    return absl::InvalidArgumentError(Cat(TypeName(type), " [", absl::StrJoin(shape, ","), "] takes ",
                                          count * element, " bytes; ", data.size(), " are there"));
  }
  proto::Tensor tensor;
  tensor.mutable_spec()->set_type(type);
  for (const std::int64_t size : shape) tensor.mutable_spec()->add_shape(size);
  tensor.mutable_data()->set_inlined(std::move(data));
  return tensor;
}

absl::Status CheckAgainst(const proto::TensorSpec& declared, const proto::TensorSpec& found) {
  bool fits = declared.type() == found.type() && declared.shape_size() == found.shape_size();
  for (int i = 0; fits && i < declared.shape_size(); ++i)
    fits = declared.shape(i) < 0 || declared.shape(i) == found.shape(i);
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("expected ", Describe(declared), ", found ", Describe(found), "; convert the data",
          declared.type() == found.type() ? " to that shape" : " to that type"));
}

void AppendBytesElement(std::string& data, std::string_view element) {
  const auto size = static_cast<std::uint32_t>(element.size());
  for (int shift = 0; shift < 32; shift += 8) data += static_cast<char>((size >> shift) & 0xFF);
  data += element;
}

std::optional<std::vector<std::string_view>> BytesElements(std::string_view data) {
  std::vector<std::string_view> elements;
  while (!data.empty()) {
    if (data.size() < 4) return std::nullopt;
    std::uint32_t size = 0;
    for (std::size_t i = 0; i < 4; ++i)
      size |= static_cast<std::uint32_t>(static_cast<unsigned char>(data[i])) << (8 * i);
    data.remove_prefix(4);
    if (size > data.size()) return std::nullopt;
    elements.push_back(data.substr(0, size));
    data.remove_prefix(size);
  }
  return elements;
}

float HalfToFloat(std::uint16_t half) {
  const int exponent = (half >> 10) & 0x1F;
  const int fraction = half & 0x3FF;
  float value = 0;
  if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

float Bfloat16ToFloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t FloatToHalf(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00);
  const float size = std::fabs(value);
  if (size >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7C00);  // what rounds beyond 65504
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);
  // Steps of a half near `size`: 2^(e-11), and 2^-24 where the numbers are subnormal. nearbyint rounds to
  // even.
  const int step = std::max(exponent - 11, -24);
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, -step)));
  // With units in [1024, 2048] the implicit bit, and a carry into the exponent, come out of the sum.
  const std::uint32_t bits = static_cast<std::uint32_t>(step + 24) * 1024 + units;
  return static_cast<std::uint16_t>(sign | bits);
}

std::uint16_t FloatToBfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace troupe::shell
