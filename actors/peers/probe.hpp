// A plain TCP connect with a limit: is somebody listening there?
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::actors {

// UNAVAILABLE with the reason. Blocks for at most `limit` (name look-up excepted).
absl::Status ProbeTcp(const std::string& host, std::uint16_t port, Duration limit);

}  // namespace troupe::actors
