#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/status.hpp"
#include "gateway/tensor_json.hpp"
#include "gateway/tensor_type.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

// Rounds a number that from_chars would not take: too small becomes zero or denormal, too large is refused.
bool RoundExtreme(std::string_view token, float& value) {
  value = std::strtof(std::string(token).c_str(), nullptr);
  return std::isfinite(value);
}
bool RoundExtreme(std::string_view token, double& value) {
  value = std::strtod(std::string(token).c_str(), nullptr);
  return std::isfinite(value);
}

template <typename Float>
bool ParseFloat(std::string_view token, Float& value) {
  if (token == "NaN") return value = std::numeric_limits<Float>::quiet_NaN(), true;
  if (token == "Infinity") return value = std::numeric_limits<Float>::infinity(), true;
  if (token == "-Infinity") return value = -std::numeric_limits<Float>::infinity(), true;
  const auto [rest, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  return error == std::errc() || RoundExtreme(token, value);
}

// Writes one element after another; knows how to read one from the cursor.
template <typename T>
class NumberSink {
 public:
  explicit NumberSink(std::span<std::byte> out) : out_(out) {}

  bool Read(JsonCursor& cursor, proto::DataType type) {
    T value{};
    std::string_view token;
    if (!cursor.ReadNumber(token)) return false;
    bool fits = false;
    if constexpr (std::is_floating_point_v<T>) {
      fits = ParseFloat(token, value);
    } else {
      const auto [rest, error] = std::from_chars(token.data(), token.data() + token.size(), value);
      fits = error == std::errc() && rest == token.data() + token.size();
    }
    if (!fits) {
      cursor.Seek(cursor.offset() - token.size());
      return cursor.Fail(Cat("'", token.substr(0, 40), "' is not a valid ", TypeName(type)));
    }
    std::memcpy(out_.data() + at_, &value, sizeof(value));
    at_ += sizeof(value);
    return true;
  }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

class BoolSink {
 public:
  explicit BoolSink(std::span<std::byte> out) : out_(out) {}

  bool Read(JsonCursor& cursor, proto::DataType) {
    bool value = false;
    if (cursor.Peek() == JsonCursor::Kind::kNumber) {
      std::uint64_t number = 0;
      if (!cursor.ReadUint(number)) return false;
      if (number > 1) return cursor.Fail("a BOOL is true, false, 0 or 1");
      value = number == 1;
    } else if (!cursor.ReadBool(value)) {
      return false;
    }
    out_[at_++] = std::byte{value};
    return true;
  }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

// With no `out`, only counts.
class BytesSink {
 public:
  explicit BytesSink(std::span<std::byte> out) : out_(out) {}
  [[nodiscard]] std::uint64_t size() const { return at_; }

  bool Read(JsonCursor& cursor, proto::DataType) {
    std::string_view text;
    if (!cursor.ReadString(text)) return false;
    if (text.size() > std::numeric_limits<std::uint32_t>::max())
      return cursor.Fail("string longer than 4 GiB");
    const auto length = static_cast<std::uint32_t>(text.size());
    if (!out_.empty()) {
      std::memcpy(out_.data() + at_, &length, sizeof(length));
      std::memcpy(out_.data() + at_ + sizeof(length), text.data(), text.size());
    }
    at_ += sizeof(length) + text.size();
    return true;
  }

 private:
  std::span<std::byte> out_;
  std::uint64_t at_ = 0;
};

// Walks the array, flat or nested, and checks the number of elements at every level.
template <typename Sink>
class ArrayWalk {
 public:
  ArrayWalk(JsonCursor& cursor, const proto::TensorSpec& spec, Sink& sink)
      : cursor_(cursor), spec_(spec), sink_(sink) {}

  bool Run(std::uint64_t count) {
    const JsonCursor start = cursor_;
    if (!cursor_.BeginArray()) return false;
    const bool nested = cursor_.Peek() == JsonCursor::Kind::kArray;
    if (!nested) return Leaves(count, "elements in all");
    cursor_ = start;
    return Level(0);
  }

 private:
  bool Leaves(std::uint64_t expected, std::string_view where) {
    std::uint64_t read = 0;
    for (; cursor_.NextElement(); ++read) {
      if (read == expected) return Count(expected, where, "more");
      if (!sink_.Read(cursor_, spec_.type())) return false;
    }
    if (!cursor_.ok()) return false;
    return read == expected || Count(expected, where, Cat(read));
  }

  bool Level(int dimension) {
    if (dimension == spec_.shape_size()) return cursor_.Fail("array nested deeper than the shape");
    const auto expected = static_cast<std::uint64_t>(spec_.shape(dimension));
    if (!cursor_.BeginArray()) return false;
    if (dimension + 1 == spec_.shape_size()) return Leaves(expected, "elements in the last dimension");
    std::uint64_t read = 0;
    for (; cursor_.NextElement(); ++read) {
      if (read == expected) return Count(expected, Cat("items in dimension ", dimension), "more");
      if (!Level(dimension + 1)) return false;
    }
    if (!cursor_.ok()) return false;
    return read == expected || Count(expected, Cat("items in dimension ", dimension), Cat(read));
  }

  bool Count(std::uint64_t expected, std::string_view where, std::string_view got) {
    return cursor_.Fail(
        Cat("shape ", ShapeText(spec_), " has ", expected, " ", where, ", but \"data\" has ", got));
  }

  JsonCursor& cursor_;
  const proto::TensorSpec& spec_;
  Sink& sink_;
};

absl::Status WithName(const proto::TensorSpec& spec, const absl::Status& status) {
  return absl::Status(status.code(), Cat("input '", spec.name(), "': ", Message(status)));
}

template <typename Sink>
absl::Status Walk(JsonCursor& cursor, const proto::TensorSpec& spec, Sink& sink) {
  TROUPE_ASSIGN_OR_RETURN(const std::uint64_t count, ElementCount(spec));
  if (ArrayWalk<Sink>(cursor, spec, sink).Run(count)) return absl::OkStatus();
  return WithName(spec, cursor.status());
}

template <typename Sink>
absl::Status ReadAs(JsonCursor& cursor, const proto::TensorSpec& spec, std::span<std::byte> out) {
  Sink sink(out);
  return Walk(cursor, spec, sink);
}

}  // namespace

absl::StatusOr<Bytes> MeasureJsonTensor(JsonCursor& cursor, const proto::TensorSpec& spec) {
  if (!HasJsonForm(spec.type())) {
    return absl::InvalidArgumentError(Cat("input '", spec.name(), "': ", TypeName(spec.type()),
                                          " has no JSON form; send raw bytes with \"binary_data_size\""));
  }
  // The shape is only a claim: a place is reserved for no more elements than the text could hold.
  TROUPE_ASSIGN_OR_RETURN(const std::uint64_t count, ElementCount(spec));
  if (count > cursor.remaining()) {
    return absl::InvalidArgumentError(Cat("input '", spec.name(), "': shape ", ShapeText(spec), " has ",
                                          count, " elements, but \"data\" has fewer"));
  }
  if (spec.type() != proto::BYTES) return TensorSize(spec);
  const JsonCursor start = cursor;
  BytesSink sink({});
  TROUPE_RETURN_IF_ERROR(Walk(cursor, spec, sink));
  cursor = start;
  return Bytes(sink.size());
}

absl::Status ReadJsonTensor(JsonCursor& cursor, const proto::TensorSpec& spec, std::span<std::byte> out) {
  switch (spec.type()) {
    case proto::BOOL:
      return ReadAs<BoolSink>(cursor, spec, out);
    case proto::UINT8:
      return ReadAs<NumberSink<std::uint8_t>>(cursor, spec, out);
    case proto::UINT16:
      return ReadAs<NumberSink<std::uint16_t>>(cursor, spec, out);
    case proto::UINT32:
      return ReadAs<NumberSink<std::uint32_t>>(cursor, spec, out);
    case proto::UINT64:
      return ReadAs<NumberSink<std::uint64_t>>(cursor, spec, out);
    case proto::INT8:
      return ReadAs<NumberSink<std::int8_t>>(cursor, spec, out);
    case proto::INT16:
      return ReadAs<NumberSink<std::int16_t>>(cursor, spec, out);
    case proto::INT32:
      return ReadAs<NumberSink<std::int32_t>>(cursor, spec, out);
    case proto::INT64:
      return ReadAs<NumberSink<std::int64_t>>(cursor, spec, out);
    case proto::FP32:
      return ReadAs<NumberSink<float>>(cursor, spec, out);
    case proto::FP64:
      return ReadAs<NumberSink<double>>(cursor, spec, out);
    case proto::BYTES:
      return ReadAs<BytesSink>(cursor, spec, out);
    default:
      return absl::InvalidArgumentError(
          Cat("input '", spec.name(), "': ", TypeName(spec.type()), " has no JSON form"));
  }
}

}  // namespace troupe::gateway
