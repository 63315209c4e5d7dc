#include "gpu/ops/convert.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/check.hpp"

namespace troupe::gpu {
namespace {

template <class To, class From>
To ConvertOne(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(value)) return 0;
    // The bounds as powers of two are exact in either float type, unlike numeric_limits<To>::max().
    const From high = std::ldexp(From(1), std::numeric_limits<To>::digits);
    if (value >= high) return std::numeric_limits<To>::max();
    const From low = std::is_signed_v<To> ? -high : From(0);
    if (value <= low) return std::numeric_limits<To>::min();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
void ConvertLoop(const std::byte* from, std::byte* to, std::int64_t count) {
  const From* source = reinterpret_cast<const From*>(from);
  To* target = reinterpret_cast<To*>(to);
  for (std::int64_t i = 0; i < count; ++i) target[i] = ConvertOne<To>(source[i]);
}

using Loop = void (*)(const std::byte*, std::byte*, std::int64_t);

template <class From>
Loop LoopTo(proto::DataType to) {
  switch (to) {
    case proto::BOOL:
      return &ConvertLoop<From, bool>;
    case proto::UINT8:
      return &ConvertLoop<From, std::uint8_t>;
    case proto::UINT16:
      return &ConvertLoop<From, std::uint16_t>;
    case proto::UINT32:
      return &ConvertLoop<From, std::uint32_t>;
    case proto::UINT64:
      return &ConvertLoop<From, std::uint64_t>;
    case proto::INT8:
      return &ConvertLoop<From, std::int8_t>;
    case proto::INT16:
      return &ConvertLoop<From, std::int16_t>;
    case proto::INT32:
      return &ConvertLoop<From, std::int32_t>;
    case proto::INT64:
      return &ConvertLoop<From, std::int64_t>;
    case proto::FP32:
      return &ConvertLoop<From, float>;
    case proto::FP64:
      return &ConvertLoop<From, double>;
    default:
      return nullptr;
  }
}

Loop FindLoop(proto::DataType from, proto::DataType to) {
  switch (from) {
    // A byte of a hostile BOOL tensor may hold any value, so it is read as an integer.
    case proto::BOOL:
    case proto::UINT8:
      return LoopTo<std::uint8_t>(to);
    case proto::UINT16:
      return LoopTo<std::uint16_t>(to);
    case proto::UINT32:
      return LoopTo<std::uint32_t>(to);
    case proto::UINT64:
      return LoopTo<std::uint64_t>(to);
    case proto::INT8:
      return LoopTo<std::int8_t>(to);
    case proto::INT16:
      return LoopTo<std::int16_t>(to);
    case proto::INT32:
      return LoopTo<std::int32_t>(to);
    case proto::INT64:
      return LoopTo<std::int64_t>(to);
    case proto::FP32:
      return LoopTo<float>(to);
    case proto::FP64:
      return LoopTo<double>(to);
    default:
      return nullptr;
  }
}

bool IsHalf(proto::DataType type) {
  return type == proto::FP16 || type == proto::BF16;
}

// Half-precision ends go through FP32 in blocks that stay in the nearest cache.
void ConvertThroughFloat(proto::DataType from_type, const std::byte* from, proto::DataType to_type,
                         std::byte* to, std::int64_t count) {
  std::array<float, 512> block;
  auto* block_bytes = reinterpret_cast<std::byte*>(block.data());
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t n = std::min<std::int64_t>(count - done, block.size());
    if (IsHalf(from_type)) {
      const auto* source = reinterpret_cast<const std::uint16_t*>(from) + done;
      for (std::int64_t i = 0; i < n; ++i) {
        block[i] = from_type == proto::FP16 ? HalfToFloat(source[i]) : BfloatToFloat(source[i]);
      }
    } else {
      FindLoop(from_type, proto::FP32)(from + done * ElementSize(from_type), block_bytes, n);
    }
    if (IsHalf(to_type)) {
      auto* target = reinterpret_cast<std::uint16_t*>(to) + done;
      for (std::int64_t i = 0; i < n; ++i) {
        target[i] = to_type == proto::FP16 ? FloatToHalf(block[i]) : FloatToBfloat(block[i]);
      }
    } else {
      FindLoop(proto::FP32, to_type)(block_bytes, to + done * ElementSize(to_type), n);
    }
    done += n;
  }
}

}  // namespace

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7e00U;
  if (magnitude >= 0x47800000U) return sign | 0x7c00U;  // 65536 and more
  if (magnitude < 0x38800000U) {  // subnormal: let the adder round to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U);
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000U) >> 13);
}

void ConvertElements(proto::DataType from_type, const std::byte* from, proto::DataType to_type, std::byte* to,
                     std::int64_t count) {
  if (count == 0) return;
  if (from_type == to_type && from_type != proto::BOOL) {
    return CopyBytes(to, from, static_cast<std::size_t>(count) * ElementSize(from_type));
  }
  if (IsHalf(from_type) || IsHalf(to_type)) return ConvertThroughFloat(from_type, from, to_type, to, count);
  Loop loop = FindLoop(from_type, to_type);
  TROUPE_CHECK(loop != nullptr, "conversion between types without a fixed element size");
  loop(from, to, count);
}

proto::DataType FloatWideType(proto::DataType type) {
  return IsHalf(type) ? proto::FP32 : type;
}

proto::DataType WideType(proto::DataType type) {
  switch (type) {
    case proto::FP16:
    case proto::BF16:
      return proto::FP32;
    case proto::UINT8:
    case proto::UINT16:
    case proto::INT8:
    case proto::INT16:
      return proto::INT32;
    case proto::UINT32:
      return proto::INT64;
    default:
      return type;
  }
}

namespace {

class ConvertedKernel final : public Kernel {
 public:
  ConvertedKernel(std::unique_ptr<Kernel> inner, std::vector<ValueInfo> in, std::vector<ValueInfo> out)
      : inner_(std::move(inner)), in_(std::move(in)), out_(std::move(out)) {}

  [[nodiscard]] Bytes scratch() const override {
    Bytes total = AlignUp(inner_->scratch(), Bytes(64));
    for (const auto* infos : {&in_, &out_}) {
      for (const ValueInfo& info : *infos) total += Room(info);
    }
    return total;
  }

  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    std::byte* free = scratch + AlignUp(inner_->scratch(), Bytes(64)).count();
    std::vector<TensorView> in_views(in.begin(), in.end());
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i].type == in_[i].type) continue;
      in_views[i].type = in_[i].type;
      in_views[i].data = free;
      ConvertElements(in[i].type, in[i].data, in_[i].type, free, Elements(in[i]));
      free += Room(in_[i]).count();
    }
    std::vector<TensorView> out_views(out.begin(), out.end());
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i].data == nullptr || out[i].type == out_[i].type) continue;
      out_views[i].type = out_[i].type;
      out_views[i].data = free;
      free += Room(out_[i]).count();
    }
    TROUPE_RETURN_IF_ERROR(inner_->Run(in_views, out_views, scratch));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i].shape = out_views[i].shape;
      if (out[i].data == out_views[i].data) continue;
      ConvertElements(out_[i].type, out_views[i].data, out[i].type, out[i].data, Elements(out[i]));
    }
    return absl::OkStatus();
  }

 private:
  static Bytes Room(const ValueInfo& info) {
    return AlignUp(Bytes(static_cast<std::uint64_t>(info.elements()) * ElementSize(info.type)), Bytes(64));
  }

  std::unique_ptr<Kernel> inner_;
  std::vector<ValueInfo> in_;  // as the inner kernel sees them
  std::vector<ValueInfo> out_;
};

}  // namespace

Made MakeConverted(MakeFunction make, const StepContext& ctx, Infos in, Infos out,
                   std::span<const proto::DataType> in_types, std::span<const proto::DataType> out_types) {
  std::vector<ValueInfo> wide_in(in.begin(), in.end());
  std::vector<ValueInfo> wide_out(out.begin(), out.end());
  bool differs = false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].absent() || in[i].type == in_types[i]) continue;
    wide_in[i].type = in_types[i];
    wide_in[i].constant = nullptr;
    differs = true;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    differs = differs || out[i].type != out_types[i];
    wide_out[i].type = out_types[i];
  }
  if (!differs) return make(ctx, in, out);
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> inner, make(ctx, wide_in, wide_out));
  return std::unique_ptr<Kernel>(
      std::make_unique<ConvertedKernel>(std::move(inner), std::move(wide_in), std::move(wide_out)));
}

Made MakeWidened(MakeFunction make, WidenFunction widen, const StepContext& ctx, Infos in, Infos out) {
  std::vector<proto::DataType> in_types;
  std::vector<proto::DataType> out_types;
  for (const ValueInfo& info : in) in_types.push_back(widen(info.type));
  for (const ValueInfo& info : out) out_types.push_back(widen(info.type));
  return MakeConverted(make, ctx, in, out, in_types, out_types);
}

}  // namespace troupe::gpu
