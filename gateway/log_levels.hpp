// The levels of a daemon's log by the names that people write: as an option, and at the operations port.
#pragma once

#include <spdlog/common.h>

#include <array>

#include "base/enum_names.hpp"

namespace troupe::gateway {

inline constexpr std::array<EnumName<spdlog::level::level_enum>, 7> kLogLevels = {
    {{"trace", spdlog::level::trace},
     {"debug", spdlog::level::debug},
     {"info", spdlog::level::info},
     {"warn", spdlog::level::warn},
     {"error", spdlog::level::err},
     {"critical", spdlog::level::critical},
     {"off", spdlog::level::off}}};

}  // namespace troupe::gateway
