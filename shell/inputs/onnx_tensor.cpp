#include "shell/inputs/onnx_tensor.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "shell/inputs/tensor.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Numbers of the fields in onnx.proto.
enum Field {
  kDims = 1,
  kDataType = 2,
  kSegment = 3,
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kName = 8,
  kRawData = 9,
  kDoubleData = 10,
  kUint64Data = 11,
  kExternalData = 13,
  kDataLocation = 14,
};

absl::Status WrongOnnx(std::string_view what) {
  return absl::InvalidArgumentError(Cat("no valid ONNX tensor: ", what));
}

std::optional<proto::DataType> TypeOfOnnx(std::uint64_t number) {
  switch (number) {
    case 1:
      return proto::FP32;
    case 2:
      return proto::UINT8;
    case 3:
      return proto::INT8;
    case 4:
      return proto::UINT16;
    case 5:
      return proto::INT16;
    case 6:
      return proto::INT32;
    case 7:
      return proto::INT64;
    case 8:
      return proto::BYTES;
    case 9:
      return proto::BOOL;
    case 10:
      return proto::FP16;
    case 11:
      return proto::FP64;
    case 12:
      return proto::UINT32;
    case 13:
      return proto::UINT64;
    case 16:
      return proto::BF16;
    default:
      return std::nullopt;
  }
}

// Which repeated field holds the elements of a type that has no raw data.
int TypedField(proto::DataType type) {
  switch (type) {
    case proto::FP32:
      return kFloatData;
    case proto::FP64:
      return kDoubleData;
    case proto::INT64:
      return kInt64Data;
    case proto::UINT32:
    case proto::UINT64:
      return kUint64Data;
    case proto::BYTES:
      return kStringData;
    default:
      return kInt32Data;
  }
}

void AppendLittleEndian(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

class Reader {
 public:
  explicit Reader(std::string_view file)
      : in_(reinterpret_cast<const std::uint8_t*>(file.data()), static_cast<int>(file.size())) {
    in_.SetTotalBytesLimit(static_cast<int>(file.size()));
  }

  absl::StatusOr<proto::Tensor> Read() {
    while (const std::uint32_t tag = in_.ReadTag()) {
      if (!Take(tag)) return WrongOnnx("it is cut short or no protobuf message");
    }
    if (!in_.ConsumedEntireMessage()) return WrongOnnx("it is cut short or no protobuf message");
    if (elsewhere_) return WrongOnnx("its data lie in another file or in segments; save it whole");
    const auto type = TypeOfOnnx(data_type_);
    if (!type) return WrongOnnx(Cat("its elements have ONNX type ", data_type_, ", which cannot be sent"));
    TROUPE_ASSIGN_OR_RETURN(auto tensor, Assemble(*type));
    tensor.mutable_spec()->set_name(name_);
    return tensor;
  }

 private:
  bool Take(std::uint32_t tag) {
    switch (WireFormatLite::GetTagFieldNumber(tag)) {
      case kDims:
        return Varints(tag, dims_);
      case kDataType:
        return IsVarint(tag) && in_.ReadVarint64(&data_type_);
      case kName:
        return Text(tag, name_);
      case kRawData:
        return (raw_ = std::string(), Text(tag, *raw_));
      case kFloatData:
        return Fixed(tag, WireFormatLite::WIRETYPE_FIXED32, floats_);
      case kDoubleData:
        return Fixed(tag, WireFormatLite::WIRETYPE_FIXED64, doubles_);
      case kInt32Data:
        return Varints(tag, int32s_);
      case kInt64Data:
        return Varints(tag, int64s_);
      case kUint64Data:
        return Varints(tag, uint64s_);
      case kStringData:
        return Text(tag, strings_.emplace_back());
      case kDataLocation: {
        std::uint64_t location = 0;
        if (!IsVarint(tag) || !in_.ReadVarint64(&location)) return false;
        elsewhere_ = elsewhere_ || location != 0;
        return true;
      }
      case kSegment:
      case kExternalData:
        elsewhere_ = true;
        return WireFormatLite::SkipField(&in_, tag);
      default:
        return WireFormatLite::SkipField(&in_, tag);
    }
  }

  static bool IsVarint(std::uint32_t tag) {
    return WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_VARINT;
  }
  static bool IsDelimited(std::uint32_t tag) {
    return WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  }

  bool Text(std::uint32_t tag, std::string& out) {
    std::uint32_t length = 0;
    return IsDelimited(tag) && in_.ReadVarint32(&length) && HasBytes(length) &&
           in_.ReadString(&out, static_cast<int>(length));
  }
  bool HasBytes(std::uint32_t length) {
    const int left = in_.BytesUntilTotalBytesLimit();
    return length <= static_cast<std::uint32_t>(left < 0 ? 0 : left);
  }

  // Runs `one` until a packed field has ended, or once.
  template <class One>
  bool EachOf(std::uint32_t tag, WireFormatLite::WireType single, One one) {
    if (WireFormatLite::GetTagWireType(tag) == single) return one();
    std::uint32_t length = 0;
    if (!IsDelimited(tag) || !in_.ReadVarint32(&length) || !HasBytes(length)) return false;
    const auto limit = in_.PushLimit(static_cast<int>(length));
    while (in_.BytesUntilLimit() > 0)
      if (!one()) return false;
    in_.PopLimit(limit);
    return true;
  }
  bool Varints(std::uint32_t tag, std::vector<std::uint64_t>& out) {
    return EachOf(tag, WireFormatLite::WIRETYPE_VARINT,
                  [&] { return in_.ReadVarint64(&out.emplace_back()); });
  }
  bool Fixed(std::uint32_t tag, WireFormatLite::WireType type, std::vector<std::uint64_t>& out) {
    return EachOf(tag, type, [&] {
      if (type == WireFormatLite::WIRETYPE_FIXED64) return in_.ReadLittleEndian64(&out.emplace_back());
      std::uint32_t value = 0;
      const bool ok = in_.ReadLittleEndian32(&value);
      out.push_back(value);
      return ok;
    });
  }

  absl::StatusOr<proto::Tensor> Assemble(proto::DataType type) {
    const std::vector<std::int64_t> shape(dims_.begin(), dims_.end());
    if (type == proto::BYTES) {
      TROUPE_ASSIGN_OR_RETURN(const auto count, ElementCount(shape));
      if (count != strings_.size())
        return WrongOnnx(Cat("its shape asks for ", count, " strings; ", strings_.size(), " are there"));
      std::string data;
      for (const auto& text : strings_) AppendBytesElement(data, text);
      return MakeTensor(type, shape, std::move(data));
    }
    if (raw_) return MakeTensor(type, shape, std::move(*raw_));
    std::string data;
    const std::size_t element = ElementSize(type);
    for (const std::uint64_t value : Elements(TypedField(type))) AppendLittleEndian(data, value, element);
    return MakeTensor(type, shape, std::move(data));
  }
  [[nodiscard]] const std::vector<std::uint64_t>& Elements(int field) const {
    switch (field) {
      case kFloatData:
        return floats_;
      case kDoubleData:
        return doubles_;
      case kInt64Data:
        return int64s_;
      case kUint64Data:
        return uint64s_;
      default:
        return int32s_;
    }
  }

  CodedInputStream in_;
  std::vector<std::uint64_t> dims_;
  std::uint64_t data_type_ = 0;
  std::string name_;
  std::optional<std::string> raw_;
  std::vector<std::uint64_t> floats_, doubles_, int32s_, int64s_, uint64s_;  // as bits
  std::vector<std::string> strings_;
  bool elsewhere_ = false;
};

}  // namespace

absl::StatusOr<proto::Tensor> ParseOnnxTensor(std::string_view file) {
  if (file.size() > kMostFileBytes) return WrongOnnx("it is too large for a request");
  return Reader(file).Read();
}

}  // namespace troupe::shell
