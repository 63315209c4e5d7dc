// The part of a GPU that a function owns, in words.
#pragma once

#include <string>

#include "proto/function.pb.h"

namespace troupe::proto {

// "24 % of the SMs for 30 % of the time on node-1 GPU 0".
[[nodiscard]] inline std::string Describe(const GpuPlace& place) {
  return std::to_string(place.sms()) + " % of the SMs for " + std::to_string(place.quota()) +
         " % of the time on " + place.node() + " GPU " + std::to_string(place.gpu());
}

}  // namespace troupe::proto
