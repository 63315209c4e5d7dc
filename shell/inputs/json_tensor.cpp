#include "shell/inputs/json_tensor.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "shell/inputs/tensor.hpp"
#include "shell/inputs/tensor_values.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

namespace json = boost::json;

absl::Status WrongJson(std::string_view what) {
  return absl::InvalidArgumentError(Cat("no valid JSON tensor: ", what));
}

// JSON has no such numbers; here and over HTTP they may be written, outside of strings. Boost reads each as a string with this in
// front, which no string of a person has.
constexpr char kNotFiniteMark = '\x01';
const std::pair<std::string_view, double> kNotFinite[] = {
    {"-Infinity", -std::numeric_limits<double>::infinity()},
    {"Infinity", std::numeric_limits<double>::infinity()},
    {"NaN", std::numeric_limits<double>::quiet_NaN()},
};

std::string MarkNotFinite(std::string_view text) {
  std::string marked;
  bool in_string = false;
  while (!text.empty()) {
    const auto named = std::ranges::find_if(
        kNotFinite, [&](const auto& number) { return !in_string && text.starts_with(number.first); });
    if (named != std::end(kNotFinite)) {
      Append(&marked, "\"\\u0001", named->first, "\"");
      text.remove_prefix(named->first.size());
      continue;
    }
    const std::size_t taken = in_string && text[0] == '\\' && text.size() > 1 ? 2 : 1;
    if (text[0] == '"') in_string = !in_string;
    marked += text.substr(0, taken);
    text.remove_prefix(taken);
  }
  return marked;
}

std::optional<double> NotFinite(const json::value& value) {
  const auto* text = value.if_string();
  if (text == nullptr || text->empty() || text->front() != kNotFiniteMark) return std::nullopt;
  for (const auto& [name, number] : kNotFinite)
    if (std::string_view(text->data() + 1, text->size() - 1) == name) return number;
  return std::nullopt;
}

std::string Show(const json::value& value) {
  if (NotFinite(value)) return std::string(value.get_string().c_str() + 1);
  std::string text = json::serialize(value);
  if (text.size() > 40) text.replace(40, std::string::npos, "...");
  return text;
}

template <class T>
void AppendRaw(std::string& data, T value) {
  data.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool AppendInteger(std::string& data, const json::value& value) {
  if (const auto* s = value.if_int64(); s != nullptr && std::in_range<T>(*s))
    return AppendRaw(data, static_cast<T>(*s)), true;
  if (const auto* u = value.if_uint64(); u != nullptr && std::in_range<T>(*u))
    return AppendRaw(data, static_cast<T>(*u)), true;
  // 3.0 and 1e3 are integers too, as far as a double is exact.
  const auto* d = value.if_double();
  if (d == nullptr || *d != std::floor(*d) || std::fabs(*d) > 9007199254740992.0) return false;
  const auto whole = static_cast<std::int64_t>(*d);
  if (!std::in_range<T>(whole)) return false;
  return AppendRaw(data, static_cast<T>(whole)), true;
}

bool AppendReal(std::string& data, const json::value& value, proto::DataType type) {
  const auto not_finite = NotFinite(value);
  if (!not_finite && !value.is_number()) return false;
  const double real = not_finite ? *not_finite : value.to_number<double>();
  if (type == proto::FP64) return AppendRaw(data, real), true;
  const auto narrow = static_cast<float>(real);
  if (type == proto::FP32) {
    AppendRaw(data, narrow);
    return not_finite || std::isfinite(narrow);
  }
  const std::uint16_t half = type == proto::FP16 ? FloatToHalf(narrow) : FloatToBfloat16(narrow);
  AppendRaw(data, half);
  return not_finite || std::isfinite(type == proto::FP16 ? HalfToFloat(half) : Bfloat16ToFloat(half));
}

bool AppendElement(std::string& data, const json::value& value, proto::DataType type) {
  switch (type) {
    case proto::BOOL:
      if (value.is_bool()) return data += static_cast<char>(value.get_bool()), true;
      return false;
    case proto::UINT8:
      return AppendInteger<std::uint8_t>(data, value);
    case proto::UINT16:
      return AppendInteger<std::uint16_t>(data, value);
    case proto::UINT32:
      return AppendInteger<std::uint32_t>(data, value);
    case proto::UINT64:
      return AppendInteger<std::uint64_t>(data, value);
    case proto::INT8:
      return AppendInteger<std::int8_t>(data, value);
    case proto::INT16:
      return AppendInteger<std::int16_t>(data, value);
    case proto::INT32:
      return AppendInteger<std::int32_t>(data, value);
    case proto::INT64:
      return AppendInteger<std::int64_t>(data, value);
    case proto::BYTES:
      if (!value.is_string() || NotFinite(value)) return false;
      return AppendBytesElement(data, std::string_view(value.get_string().data(), value.get_string().size())),
             true;
    default:
      return AppendReal(data, value, type);
  }
}

// Walks nested lists; every list of one depth must be as long as the first of that depth.
class Flattener {
 public:
  explicit Flattener(proto::DataType type) : type_(type) {}

  absl::Status Walk(const json::value& value, std::size_t depth) {
    const auto* list = value.if_array();
    if (list == nullptr) {
      if (depth != shape.size()) return WrongJson("its lists are not nested evenly");
      if (!AppendElement(data, value, type_))
        return WrongJson(Cat(Show(value), " is not a valid value of type ", TypeName(type_)));
      leaf_ = true;
      return absl::OkStatus();
    }
    if (depth == kMostDimensions) return WrongJson("its lists are nested too deeply");
    if (depth == shape.size()) {
      if (leaf_) return WrongJson("its lists are not nested evenly");
      shape.push_back(static_cast<std::int64_t>(list->size()));
    } else if (shape[depth] != static_cast<std::int64_t>(list->size())) {
      return WrongJson(Cat("a list has ", list->size(), " elements, one beside it ", shape[depth]));
    }
    for (const auto& element : *list) TROUPE_RETURN_IF_ERROR(Walk(element, depth + 1));
    return absl::OkStatus();
  }

  std::vector<std::int64_t> shape;
  std::string data;

 private:
  const proto::DataType type_;
  bool leaf_ = false;
};

// The declared shape, with its one open size taken from the number of elements; the flat shape when that is
// impossible.
std::vector<std::int64_t> Unflatten(const proto::TensorSpec& declared, std::int64_t elements) {
  std::vector<std::int64_t> shape(declared.shape().begin(), declared.shape().end());
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (auto& size : shape) {
    if (size < 0) {
      if (open != nullptr) return {elements};
      open = &size;
    } else if (__builtin_mul_overflow(known, size, &known)) {
      return {elements};
    }
  }
  if (open == nullptr) return known == elements ? shape : std::vector<std::int64_t>{elements};
  if (known == 0 || elements % known != 0) return {elements};
  *open = elements / known;
  return shape;
}

absl::StatusOr<proto::Tensor> FromData(const json::value& data, proto::DataType type,
                                       const proto::TensorSpec& declared,
                                       const std::optional<std::vector<std::int64_t>>& given) {
  Flattener flat(type);
  TROUPE_RETURN_IF_ERROR(flat.Walk(data, 0));
  std::vector<std::int64_t> shape = flat.shape;
  if (given) {
    // The protocol allows flat data under any shape, and nested data whose nesting is that shape.
    if (flat.shape.size() != 1 && flat.shape != *given) {
      return WrongJson(Cat("its data are nested as [", absl::StrJoin(flat.shape, ","), "], its shape is [",
                           absl::StrJoin(*given, ","), "]"));
    }
    TROUPE_ASSIGN_OR_RETURN(const auto count, ElementCount(*given));
    if (flat.shape.size() == 1 && count != static_cast<std::uint64_t>(flat.shape[0])) {
      return WrongJson(Cat("its shape [", absl::StrJoin(*given, ","), "] asks for ", count, " elements; ",
                           flat.shape[0], " are there"));
    }
    shape = *given;
  } else if (shape.size() == 1 && declared.shape_size() != 1) {
    shape = Unflatten(declared, shape[0]);
  }
  return MakeTensor(type, shape, std::move(flat.data));
}

absl::StatusOr<std::vector<std::int64_t>> ReadShape(const json::value& value) {
  const auto* list = value.if_array();
  if (list == nullptr) return WrongJson("\"shape\" is not a list");
  std::vector<std::int64_t> shape;
  for (const auto& size : *list) {
    if (!size.is_int64())
      return WrongJson(Cat("\"shape\" holds ", Show(size), ", which is not a valid size"));
    shape.push_back(size.get_int64());
  }
  TROUPE_RETURN_IF_ERROR(ElementCount(shape).status());
  return shape;
}

absl::StatusOr<proto::Tensor> FromObject(const json::object& object, const proto::TensorSpec& declared) {
  const auto* data = object.if_contains("data");
  if (data == nullptr) return WrongJson("the object lacks \"data\"");
  proto::DataType type = declared.type();
  if (const auto* name = object.if_contains("datatype")) {
    const auto* text = name->if_string();
    const auto known = text == nullptr ? std::nullopt : TypeOf(std::string_view(text->data(), text->size()));
    if (!known) return WrongJson(Cat("\"datatype\" is ", Show(*name), "; it is a name like FP32 or INT64"));
    type = *known;
  }
  std::optional<std::vector<std::int64_t>> shape;
  if (const auto* value = object.if_contains("shape")) {
    TROUPE_ASSIGN_OR_RETURN(shape, ReadShape(*value));
  }
  return FromData(*data, type, declared, shape);
}

}  // namespace

absl::StatusOr<proto::Tensor> ParseJsonTensor(std::string_view text, const proto::TensorSpec& declared) {
  if (text.size() > kMostFileBytes) return WrongJson("it is too large for a request");
  json::error_code error;
  const auto value = json::parse(MarkNotFinite(text), error);
  if (error) return WrongJson(error.message());
  if (const auto* object = value.if_object()) return FromObject(*object, declared);
  return FromData(value, declared.type(), declared, std::nullopt);
}

std::string JsonString(std::string_view text) {
  json::string safe;
  // Serialising does not check the text, so bytes that are not valid UTF-8 are replaced before.
  for (const char c : MakeUtf8(text)) safe.push_back(c);
  return json::serialize(json::value(std::move(safe)));
}

std::string TensorToJson(const proto::Tensor& tensor) {
  const auto& spec = tensor.spec();
  const TensorValues values(tensor);
  std::string data;
  for (std::size_t i = 0; i < values.size(); ++i) Append(&data, i > 0 ? "," : "", values.Json(i));
  return Cat("{\"name\": ", JsonString(spec.name()), ", \"datatype\": \"", TypeName(spec.type()),
             "\", \"shape\": ", DescribeShape(spec.shape()), ", \"data\": [", data, "]}");
}

}  // namespace troupe::shell
