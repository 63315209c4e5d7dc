#include "gpu/import/onnx_tensor.hpp"

#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/external_data.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/operator.hpp"
#include "onnx/onnx_pb.h"

static_assert(std::endian::native == std::endian::little, "tensors are little-endian in files and in memory");

namespace troupe::gpu {
namespace {

using onnx::TensorProto;

absl::Status WrongCount(const std::string& where, std::int64_t want, std::int64_t have) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, " has ", have, " values, but its shape asks for ", want));
}

// Copies a repeated field into bytes, each value narrowed to To; a value that does not fit is an error.
template <typename To, typename Field>
absl::StatusOr<std::string> Narrow(const Field& field, std::int64_t count, const std::string& where) {
  if (field.size() != count) return WrongCount(where, count, field.size());
  std::string bytes(static_cast<std::size_t>(count) * sizeof(To), '\0');
  for (int i = 0; i < field.size(); ++i) {
    const To value = static_cast<To>(field[i]);
    if constexpr (std::is_integral_v<To>) {
      if (static_cast<std::decay_t<decltype(field[i])>>(value) != field[i])
        return absl::InvalidArgumentError(
            absl::StrCat(where, " holds ", field[i], ", which does not fit its element type"));
    }
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(To), &value, sizeof(To));
  }
  return bytes;
}

absl::StatusOr<std::string> Strings(const TensorProto& tensor, std::int64_t count, const std::string& where) {
  if (tensor.string_data_size() != count) return WrongCount(where, count, tensor.string_data_size());
  std::string bytes;
  for (const std::string& text : tensor.string_data()) {
    const auto length = static_cast<std::uint32_t>(text.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes.append(text);
  }
  return bytes;
}

absl::StatusOr<std::string> TypedData(const TensorProto& t, std::int64_t count, const std::string& where) {
  switch (t.data_type()) {
    case TensorProto::FLOAT:
      return Narrow<float>(t.float_data(), count, where);
    case TensorProto::DOUBLE:
      return Narrow<double>(t.double_data(), count, where);
    case TensorProto::INT64:
      return Narrow<std::int64_t>(t.int64_data(), count, where);
    case TensorProto::UINT64:
      return Narrow<std::uint64_t>(t.uint64_data(), count, where);
    case TensorProto::UINT32:
      return Narrow<std::uint32_t>(t.uint64_data(), count, where);
    case TensorProto::INT32:
      return Narrow<std::int32_t>(t.int32_data(), count, where);
    case TensorProto::INT16:
      return Narrow<std::int16_t>(t.int32_data(), count, where);
    case TensorProto::INT8:
      return Narrow<std::int8_t>(t.int32_data(), count, where);
    case TensorProto::UINT16:
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
      return Narrow<std::uint16_t>(t.int32_data(), count, where);
    case TensorProto::UINT8:
    case TensorProto::BOOL:
      return Narrow<std::uint8_t>(t.int32_data(), count, where);
    case TensorProto::STRING:
      return Strings(t, count, where);
    default:
      return absl::UnimplementedError(absl::StrCat(where, " has an element type that is not supported"));
  }
}

absl::StatusOr<std::uint64_t> Number(const std::string& key, const std::string& text,
                                     const std::string& where) {
  std::uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value))
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": external data's ", key, " is not a valid number: '", text, "'"));
  return value;
}

absl::StatusOr<TensorBytes> External(const TensorProto& tensor, std::uint64_t want,
                                     const ImportOptions& options, const std::string& where) {
  ExternalData data;
  data.length = want;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") data.location = entry.value();
    if (entry.key() == "offset") {
      TROUPE_ASSIGN_OR_RETURN(data.offset, Number(entry.key(), entry.value(), where));
    }
    if (entry.key() == "length") {
      TROUPE_ASSIGN_OR_RETURN(const std::uint64_t length, Number(entry.key(), entry.value(), where));
      if (length != want)
        return absl::InvalidArgumentError(absl::StrCat(where, ": external data's length is ", length,
                                                       " bytes, but its shape asks for ", want));
    }
  }
  auto bytes = ReadExternalData(options.folder, data, options.opened);
  if (!bytes.ok())
    return absl::Status(bytes.status().code(), absl::StrCat(where, ": ", bytes.status().message()));
  return bytes;
}

bool HasNoValues(const TensorProto& t) {
  return t.float_data().empty() && t.double_data().empty() && t.int32_data().empty() &&
         t.int64_data().empty() && t.uint64_data().empty();
}

absl::StatusOr<TensorBytes> Held(absl::StatusOr<std::string> bytes) {
  if (!bytes.ok()) return bytes.status();
  return HoldBytes(*std::move(bytes));
}

absl::StatusOr<TensorBytes> Contents(TensorProto& tensor, proto::DataType type, std::int64_t count,
                                     const ImportOptions& options, const std::string& where) {
  const bool external = tensor.data_location() == TensorProto::EXTERNAL;
  if (type == proto::BYTES) {
    if (external || tensor.has_raw_data())
      return absl::InvalidArgumentError(absl::StrCat(where, " holds strings as raw data"));
    return Held(Strings(tensor, count, where));
  }
  const std::uint64_t want = static_cast<std::uint64_t>(count) * ElementSize(type);
  if (want > options.max_weights.count())
    return absl::ResourceExhaustedError(absl::StrCat(where, " has ", FormatBytes(Bytes(want)),
                                                     ", more than the limit of ",
                                                     FormatBytes(options.max_weights), " for all weights"));
  if (external) return External(tensor, want, options, where);
  if (want > 0 && !tensor.has_raw_data() && HasNoValues(tensor)) {
    return absl::InvalidArgumentError(absl::StrCat(
        where,
        " has no data: the file was saved without its weights; save it with them, or with their place in a file ",
        "beside it (external data, which may be a safetensors file)"));
  }
  if (!tensor.has_raw_data()) return Held(TypedData(tensor, count, where));
  const std::unique_ptr<std::string> raw(tensor.release_raw_data());
  if (raw->size() != want)
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has ", raw->size(), " bytes, but its type and shape ask for ", want));
  return HoldBytes(std::move(*raw));
}

}  // namespace

proto::DataType DataTypeOfOnnx(int onnx_type) {
  switch (onnx_type) {
    case TensorProto::FLOAT:
      return proto::FP32;
    case TensorProto::DOUBLE:
      return proto::FP64;
    case TensorProto::FLOAT16:
      return proto::FP16;
    case TensorProto::BFLOAT16:
      return proto::BF16;
    case TensorProto::BOOL:
      return proto::BOOL;
    case TensorProto::UINT8:
      return proto::UINT8;
    case TensorProto::UINT16:
      return proto::UINT16;
    case TensorProto::UINT32:
      return proto::UINT32;
    case TensorProto::UINT64:
      return proto::UINT64;
    case TensorProto::INT8:
      return proto::INT8;
    case TensorProto::INT16:
      return proto::INT16;
    case TensorProto::INT32:
      return proto::INT32;
    case TensorProto::INT64:
      return proto::INT64;
    case TensorProto::STRING:
      return proto::BYTES;
    default:
      return proto::DATA_TYPE_UNSPECIFIED;
  }
}

absl::StatusOr<Constant> TakeTensor(TensorProto& tensor, const ImportOptions& options,
                                    const std::string& where) {
  Constant constant;
  constant.type = DataTypeOfOnnx(tensor.data_type());
  if (constant.type == proto::DATA_TYPE_UNSPECIFIED)
    return absl::UnimplementedError(
        absl::StrCat(where, " has element type ", OnnxTypeName(tensor.data_type()),
                     ", which is not supported; export the model with another type"));
  if (tensor.has_segment()) return absl::UnimplementedError(absl::StrCat(where, " is stored in segments"));
  constant.shape.assign(tensor.dims().begin(), tensor.dims().end());
  auto count = CountElements(constant.shape);
  if (!count.ok())
    return absl::Status(count.status().code(), absl::StrCat(where, ": ", count.status().message()));
  TROUPE_ASSIGN_OR_RETURN(constant.data, Contents(tensor, constant.type, *count, options, where));
  if (constant.type == proto::BOOL) {
    std::string truth(*constant.data);
    for (char& value : truth) value = value != 0;
    constant.data = HoldBytes(std::move(truth));
  }
  return constant;
}

}  // namespace troupe::gpu
