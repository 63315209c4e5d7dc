#include "shell/inputs/tensor_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/strings/str_format.h"
#include "shell/inputs/json_tensor.hpp"
#include "shell/inputs/tensor.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

constexpr std::size_t kShownWhole = 24;  // elements
constexpr std::size_t kShownRows = 10;
constexpr std::size_t kShownTop = 5;

template <class T>
T Load(std::string_view data, std::size_t i) {
  T value{};
  std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Length of the well-formed sequence at the start; 0 when there is none.
std::size_t SequenceLength(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const unsigned second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : length;
}

// "3 (0.97)  8 (0.01)": the greatest elements of [begin, end), by their place in it.
std::string Top(const TensorValues& values, std::size_t begin, std::size_t end) {
  std::vector<std::size_t> order(end - begin);
  std::iota(order.begin(), order.end(), begin);
  const auto rank = [&](std::size_t i) {
    const double number = values.Number(i);
    return std::isnan(number) ? -std::numeric_limits<double>::infinity() : number;
  };
  const auto shown = static_cast<std::ptrdiff_t>(std::min(kShownTop, order.size()));
  std::partial_sort(order.begin(), order.begin() + shown, order.end(), [&](std::size_t a, std::size_t b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : a < b;
  });
  std::string out;
  for (auto i = order.begin(); i != order.begin() + shown; ++i)
    Append(&out, out.empty() ? "" : "  ", *i - begin, " (", values.Text(*i), ")");
  return out;
}

std::string Range(const TensorValues& values) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double sum = 0;
  std::size_t odd = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double number = values.Number(i);
    if (!std::isfinite(number)) {
      ++odd;
      continue;
    }
    least = std::min(least, number);
    most = std::max(most, number);
    sum += number;
  }
  const std::size_t finite = values.size() - odd;
  if (finite == 0) return "no finite values";
  std::string out =
      absl::StrFormat("min %.5g, max %.5g, mean %.5g", least, most, sum / static_cast<double>(finite));
  if (odd > 0) Append(&out, ", ", odd, " not finite");
  return out;
}

// Elements beside each other; those of the last dimension in a line of their own, unless there are more lines than
// one reads at a glance.
std::string Whole(const TensorValues& values, const proto::TensorSpec& spec) {
  const std::size_t shown = std::min(values.size(), kShownWhole);
  const auto last = spec.shape_size() >= 2 ? spec.shape(spec.shape_size() - 1) : 0;
  const auto line = last > 1 && shown / static_cast<std::size_t>(last) <= kShownRows
                        ? static_cast<std::size_t>(last)
                        : std::max<std::size_t>(1, shown);
  std::string out;
  for (std::size_t i = 0; i < shown; ++i)
    Append(&out, i > 0 && i % line == 0 ? "\n  " : "  ", values.Text(i));
  if (shown < values.size()) Append(&out, "  ... ", values.size() - shown, " more");
  return out + "\n";
}

}  // namespace

TensorValues::TensorValues(const proto::Tensor& tensor)
    : tensor_(tensor), element_(ElementSize(tensor.spec().type())), size_(0) {
  const std::string& data = tensor.data().inlined();
  if (element_ != 0) {
    size_ = data.size() / element_;
  } else if (auto texts = BytesElements(data)) {
    texts_ = std::move(*texts);
    size_ = texts_.size();
  }
}

double TensorValues::Number(std::size_t i) const {
  const std::string_view data = tensor_.data().inlined();
  switch (tensor_.spec().type()) {
    case proto::BOOL:
    case proto::UINT8:
      return Load<std::uint8_t>(data, i);
    case proto::UINT16:
      return Load<std::uint16_t>(data, i);
    case proto::UINT32:
      return Load<std::uint32_t>(data, i);
    case proto::UINT64:
      return static_cast<double>(Load<std::uint64_t>(data, i));
    case proto::INT8:
      return Load<std::int8_t>(data, i);
    case proto::INT16:
      return Load<std::int16_t>(data, i);
    case proto::INT32:
      return Load<std::int32_t>(data, i);
    case proto::INT64:
      return static_cast<double>(Load<std::int64_t>(data, i));
    case proto::FP16:
      return HalfToFloat(Load<std::uint16_t>(data, i));
    case proto::BF16:
      return Bfloat16ToFloat(Load<std::uint16_t>(data, i));
    case proto::FP32:
      return Load<float>(data, i);
    case proto::FP64:
      return Load<double>(data, i);
    default:
      return 0;
  }
}

std::string TensorValues::Json(std::size_t i) const {
  const std::string_view data = tensor_.data().inlined();
  switch (tensor_.spec().type()) {
    case proto::BOOL:
      return data[i] != 0 ? "true" : "false";
    case proto::INT64:
      return Cat(Load<std::int64_t>(data, i));
    case proto::UINT64:
      return Cat(Load<std::uint64_t>(data, i));
    case proto::FP16:
    case proto::BF16:
    case proto::FP32:
    case proto::FP64: {
      const double number = Number(i);
      if (!std::isfinite(number)) return "null";
      return absl::StrFormat("%.*g", tensor_.spec().type() == proto::FP64 ? 17 : 9, number);
    }
    default:
      return numeric() ? absl::StrFormat("%.0f", Number(i)) : JsonString(texts_[i]);
  }
}

std::string TensorValues::Text(std::size_t i) const {
  if (!numeric()) return Shorten(Printable(JsonString(texts_[i])), 60);
  const auto type = tensor_.spec().type();
  const bool real = type == proto::FP16 || type == proto::BF16 || type == proto::FP32 || type == proto::FP64;
  return real ? absl::StrFormat("%.5g", Number(i)) : Json(i);
}

std::string SummariseTensor(const proto::Tensor& tensor, const Style& style) {
  const TensorValues values(tensor);
  const auto& spec = tensor.spec();
  std::string out = Cat(style.Paint(Printable(spec.name()), Colour::kBold), "  ", Describe(spec), "\n");
  if (values.size() <= kShownWhole || !values.numeric()) return out + Whole(values, spec);
  Append(&out, "  ", Range(values), "\n");
  const bool batch = spec.shape_size() >= 2 && spec.shape(0) > 0 &&
                     values.size() % static_cast<std::uint64_t>(spec.shape(0)) == 0;
  const std::size_t rows = batch ? static_cast<std::size_t>(spec.shape(0)) : 1;
  const std::size_t row = values.size() / rows;
  for (std::size_t r = 0; r < std::min(rows, kShownRows); ++r) {
    const std::string label = rows == 1 ? "top" : Cat("row ", r, " top");
    Append(&out, "  ", style.Paint(label, Colour::kDim), "  ", Top(values, r * row, (r + 1) * row), "\n");
  }
  if (rows > kShownRows) Append(&out, "  ... ", rows - kShownRows, " more rows\n");
  return out;
}

std::string MakeUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = SequenceLength(text);
    if (length == 0) {
      out += '?';
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace troupe::shell
