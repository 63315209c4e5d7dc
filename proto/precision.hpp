// Precisions by the names that people write.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/function.pb.h"

namespace troupe::proto {

inline constexpr std::array<std::pair<std::string_view, Precision>, 4> kPrecisions = {{
    {"fp32", PRECISION_FP32},
    {"tf32", PRECISION_TF32},
    {"bf16", PRECISION_BF16},
    {"fp16", PRECISION_FP16},
}};
// For messages.
inline constexpr std::string_view kPrecisionNames = "fp32, tf32, bf16, fp16";

[[nodiscard]] inline std::optional<Precision> ParsePrecision(std::string_view name) {
  for (const auto& [known, precision] : kPrecisions)
    if (known == name) return precision;
  return std::nullopt;
}

// Of a newer version's, too.
[[nodiscard]] inline std::string_view Name(Precision precision) {
  for (const auto& [name, known] : kPrecisions)
    if (known == precision) return name;
  return "unknown";
}

}  // namespace troupe::proto
