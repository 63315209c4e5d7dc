// When an import divides a model into stages (gpu/import/stages.hpp), and which of them is asked for.
#pragma once

#include <compare>
#include <cstdint>

#include "base/quantity.hpp"
#include "base/units.hpp"

namespace troupe::proto {

// A limit, because each stage costs a call in each request.
inline constexpr std::uint32_t kMostStages = 64;

// DeployRequest.stage_memory, as people write it.
inline constexpr Quantity kStageMemory = {.unit = "B", .most = std::uint64_t{1} << 50, .none = "auto"};

struct StageBounds {
  Bytes above{};  // a model is divided if its weights take more; zero: none is
  Bytes most{};   // that the weights of one stage take
  [[nodiscard]] bool any() const { return above > Bytes(); }
  auto operator<=>(const StageBounds&) const = default;
};

struct StageWish {
  StageBounds bounds{};
  std::uint32_t number = 1;  // from 1
  auto operator<=>(const StageWish&) const = default;
};

}  // namespace troupe::proto
