#include "gpu/ops/text_cast.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/printable.hpp"
#include "base/status.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

constexpr std::uint64_t kLongestNumber = 24;  // "-9223372036854775808", "-1.2345679e-308"

template <class T>
T NumberAt(const TensorView& view, proto::DataType as, std::int64_t i) {
  T value{};
  ConvertElements(view.type, view.data + static_cast<std::size_t>(i) * CellSize(view.type), as,
                  reinterpret_cast<std::byte*>(&value), 1);
  return value;
}

template <class T>
void PutNumber(T value, proto::DataType from, const TensorView& view, std::int64_t i) {
  ConvertElements(from, reinterpret_cast<const std::byte*>(&value), view.type,
                  view.data + static_cast<std::size_t>(i) * CellSize(view.type), 1);
}

// The fewest digits that read back the same; whole numbers below 10^8 without an exponent.
std::string RealText(double value, bool wide) {
  constexpr int kMostDigits = 17;  // of any double
  if (std::abs(value) < 1e8 && value == std::trunc(value)) return absl::StrFormat("%.0f", value);
  for (int digits = 1;; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double read = 0;
    if (digits == kMostDigits || !absl::SimpleAtod(text, &read)) return text;
    if (wide ? read == value : static_cast<float>(read) == static_cast<float>(value)) return text;
  }
}

std::string NumberText(const TensorView& view, std::int64_t i) {
  if (view.type == proto::UINT64) return absl::StrCat(NumberAt<std::uint64_t>(view, proto::UINT64, i));
  if (!Has(kFloatTypes, view.type)) return absl::StrCat(NumberAt<std::int64_t>(view, proto::INT64, i));
  const auto value = NumberAt<double>(view, proto::FP64, i);
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "INF" : "-INF";
  return RealText(value, view.type == proto::FP64);
}

// The numbers of a whole type that INT64 holds.
struct WholeRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

template <class T>
constexpr WholeRange RangeOf() {
  return {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}

WholeRange RangeOf(proto::DataType type) {
  switch (type) {
    case proto::INT8:
      return RangeOf<std::int8_t>();
    case proto::INT16:
      return RangeOf<std::int16_t>();
    case proto::INT32:
      return RangeOf<std::int32_t>();
    case proto::UINT8:
      return RangeOf<std::uint8_t>();
    case proto::UINT16:
      return RangeOf<std::uint16_t>();
    case proto::UINT32:
      return RangeOf<std::uint32_t>();
    case proto::UINT64:
      return {0, std::numeric_limits<std::int64_t>::max()};
    default:  // INT64 and BOOL
      return RangeOf<std::int64_t>();
  }
}

// False when the text is not a number of the element's type.
bool ParseNumber(absl::string_view text, const TensorView& view, std::int64_t i) {
  if (text.find_first_of("xX") != absl::string_view::npos) return false;  // abseil reads 0x10 as 16
  double real = 0;
  if (Has(kFloatTypes, view.type)) {
    if (!absl::SimpleAtod(text, &real)) return false;
    return PutNumber(real, proto::FP64, view, i), true;
  }
  if (std::uint64_t large = 0; view.type == proto::UINT64 && absl::SimpleAtoi(text, &large))
    return PutNumber(large, proto::UINT64, view, i), true;
  const WholeRange range = RangeOf(view.type);
  std::int64_t whole = 0;
  if (!absl::SimpleAtoi(text, &whole)) {
    constexpr double kTwoTo63 = 9223372036854775808.0;
    if (!absl::SimpleAtod(text, &real) || !(real > -kTwoTo63 && real < kTwoTo63)) return false;
    whole = static_cast<std::int64_t>(real);
  }
  if (whole < range.least || whole > range.most) return false;
  return PutNumber(whole, proto::INT64, view, i), true;
}

}  // namespace

Inferred InferCastTo(const StepContext& ctx, const ValueInfo& in, proto::DataType to) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, OneValue(ctx, to, in.shape));
  if (to == proto::BYTES && in.type != proto::BYTES)
    MakesTexts(out[0], BoundOf(in.elements(), kLongestNumber));
  return out;
}

Made MakeTextCast(const StepContext& ctx, Infos in, Infos out) {
  if (in[0].type != proto::BYTES) {
    return MakeKernel([room = RoomForTexts(out[0])](In in, Out out, std::byte*) -> absl::Status {
      TextWriter writer(out[0], room);
      const std::int64_t count = Elements(in[0]);
      for (std::int64_t i = 0; i < count; ++i) TROUPE_RETURN_IF_ERROR(writer.Add(NumberText(in[0], i)));
      return absl::OkStatus();
    });
  }
  return MakeKernel([step = ctx.step](In in, Out out, std::byte*) -> absl::Status {
    const std::int64_t count = Elements(in[0]);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string_view text = TextAt(in[0], i);
      if (ParseNumber(AbslText(text), out[0], i)) continue;
      return StepContext{step}.Error(absl::StrCat("text ", i, " is '", PrintableAscii(text, 40),
                                                  "', which is not a number that ",
                                                  proto::DataType_Name(out[0].type), " can hold"));
    }
    return absl::OkStatus();
  });
}

}  // namespace troupe::gpu
