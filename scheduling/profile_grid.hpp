// PROFILE GRID: the parts of a GPU on which a profile measures a model unless it is told others (001 FaST-GShare, section
// 5.2), in percent of the SMs and of each window.
#pragma once

#include <array>
#include <cstdint>

namespace troupe {

inline constexpr std::array<std::uint32_t, 7> kGridShares = {6, 12, 24, 50, 60, 80, 100};
inline constexpr std::array<std::uint32_t, 5> kGridQuotas = {20, 40, 60, 80, 100};

}  // namespace troupe
