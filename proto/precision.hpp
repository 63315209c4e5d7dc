// Precisions by the names that people write.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "base/enum_names.hpp"
#include "proto/tensor.pb.h"

namespace troupe::proto {

inline constexpr std::array<EnumName<Precision>, 4> kPrecisions = {{
    {"fp32", PRECISION_FP32},
    {"tf32", PRECISION_TF32},
    {"bf16", PRECISION_BF16},
    {"fp16", PRECISION_FP16},
}};

[[nodiscard]] inline std::optional<Precision> ParsePrecision(std::string_view name) {
  return FindNamed(kPrecisions, name);
}

// In what the weights of a function's model may be packed. It is part of the model, so that functions which differ in it have
// models of their own. FP16 and TF32 are for devices that compute in them with weights in FP32.
[[nodiscard]] inline Precision PackedIn(Precision precision) {
  return precision == PRECISION_BF16 ? PRECISION_BF16 : PRECISION_FP32;
}

// Of a newer version's, too.
[[nodiscard]] inline std::string_view Name(Precision precision) {
  const std::string_view name = NameIn(kPrecisions, precision);
  return name.empty() ? "unknown" : name;
}

}  // namespace troupe::proto
