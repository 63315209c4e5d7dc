// HEAT MAP: a profile as an SVG picture, without another program: one panel for each batch, with the share of the SMs
// across, the quota upwards, and the throughput as colour and number. Pure.
#pragma once

#include <string>

#include "proto/function_profile.pb.h"

namespace troupe::shell {

[[nodiscard]] std::string HeatMap(const proto::FunctionProfile& profile, const std::string& function);

}  // namespace troupe::shell
