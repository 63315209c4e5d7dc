#include "gateway/tensor_type.hpp"
#include "gateway/text.hpp"

#include <array>
#include <cstring>

#include "base/status.hpp"

namespace troupe::gateway {

namespace {

struct TypeRow {
  proto::DataType type;
  std::string_view name;
};

constexpr std::array<TypeRow, 14> kTypes = {{{proto::BOOL, "BOOL"},
                                             {proto::UINT8, "UINT8"},
                                             {proto::UINT16, "UINT16"},
                                             {proto::UINT32, "UINT32"},
                                             {proto::UINT64, "UINT64"},
                                             {proto::INT8, "INT8"},
                                             {proto::INT16, "INT16"},
                                             {proto::INT32, "INT32"},
                                             {proto::INT64, "INT64"},
                                             {proto::FP16, "FP16"},
                                             {proto::FP32, "FP32"},
                                             {proto::FP64, "FP64"},
                                             {proto::BF16, "BF16"},
                                             {proto::BYTES, "BYTES"}}};

absl::Status CheckBytesElements(const proto::TensorSpec& spec, std::span<const std::byte> data,
                                std::uint64_t count) {
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t length = 0;
    if (data.size() - at < sizeof(length)) {
      return absl::InvalidArgumentError(Cat("tensor '", spec.name(), "': ", count,
                                            " BYTES elements expected for shape ", ShapeText(spec),
                                            ", but the ", data.size(), " bytes end after ", i));
    }
    std::memcpy(&length, data.data() + at, sizeof(length));
    at += sizeof(length);
    if (data.size() - at < length) {
      return absl::InvalidArgumentError(Cat("tensor '", spec.name(), "': BYTES element ", i, " says it has ",
                                            length, " bytes, but only ", data.size() - at, " are left"));
    }
    at += length;
  }
  if (at == data.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("tensor '", spec.name(), "': ", data.size() - at,
                                        " bytes are left after its ", count, " BYTES elements"));
}

absl::Status CheckBools(const proto::TensorSpec& spec, std::span<const std::byte> data) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (std::to_integer<unsigned>(data[i]) > 1) {
      return absl::InvalidArgumentError(Cat("tensor '", spec.name(), "': BOOL element ", i, " is the byte ",
                                            std::to_integer<unsigned>(data[i]), "; expected 0 or 1"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view TypeName(proto::DataType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.name;
  }
  return "UNSPECIFIED";
}

std::optional<proto::DataType> TypeFromName(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

std::string_view TypeNames() {
  static const std::string names = Join(kTypes, ", ", [](const TypeRow& row) { return row.name; });
  return names;
}

bool HasJsonForm(proto::DataType type) {
  return type != proto::FP16 && type != proto::BF16;
}

absl::StatusOr<std::uint64_t> ElementCount(const proto::TensorSpec& spec) {
  std::uint64_t count = 1;
  for (const std::int64_t dimension : spec.shape()) {
    if (dimension < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(dimension), &count)) {
      return absl::InvalidArgumentError(Cat("tensor '", spec.name(), "': shape ", ShapeText(spec),
                                            " is not a valid shape of a tensor that can be stored"));
    }
  }
  return count;
}

absl::StatusOr<Bytes> TensorSize(const proto::TensorSpec& spec) {
  TROUPE_ASSIGN_OR_RETURN(const std::uint64_t count, ElementCount(spec));
  std::uint64_t size = 0;
  if (__builtin_mul_overflow(count, std::uint64_t{ElementSize(spec.type())}, &size)) {
    return absl::InvalidArgumentError(
        Cat("tensor '", spec.name(), "': shape ", ShapeText(spec), " has more bytes than can be counted"));
  }
  return Bytes(size);
}

std::string ShapeText(const proto::TensorSpec& spec) {
  return Cat("[", Join(spec.shape(), ",", [](std::int64_t dimension) { return dimension; }), "]");
}

absl::Status CheckRawTensor(const proto::TensorSpec& spec, std::span<const std::byte> data) {
  if (spec.type() == proto::BYTES) {
    TROUPE_ASSIGN_OR_RETURN(const std::uint64_t count, ElementCount(spec));
    return CheckBytesElements(spec, data, count);
  }
  TROUPE_ASSIGN_OR_RETURN(const Bytes size, TensorSize(spec));
  if (size.count() != data.size()) {
    return absl::InvalidArgumentError(Cat("tensor '", spec.name(), "': ", size.count(),
                                          " bytes expected for ", TypeName(spec.type()), " ", ShapeText(spec),
                                          ", got ", data.size()));
  }
  return spec.type() == proto::BOOL ? CheckBools(spec, data) : absl::OkStatus();
}

absl::Status CheckAgainstDeclared(const proto::TensorSpec& declared, const proto::TensorSpec& sent) {
  bool same = declared.type() == sent.type() && declared.shape_size() == sent.shape_size();
  for (int i = 0; same && i < declared.shape_size(); ++i) {
    same = declared.shape(i) < 0 || declared.shape(i) == sent.shape(i);
  }
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("input '", sent.name(), "': expected ", TypeName(declared.type()),
                                        " ", ShapeText(declared), ", got ", TypeName(sent.type()), " ",
                                        ShapeText(sent)));
}

}  // namespace troupe::gateway
