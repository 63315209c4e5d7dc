// The names of the faults that an operator may inject, as plans have them: "kill-worker".
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

#include "proto/admin.pb.h"

namespace troupe::proto {

[[nodiscard]] inline std::string FaultName(InjectFault::Kind kind) {
  auto name = InjectFault::Kind_Name(kind);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) {
    return letter == '_' ? '-' : static_cast<char>(std::tolower(letter));
  });
  return name;
}
// Whether it is a GPU worker's, and so its node's to order.
[[nodiscard]] inline bool IsOfWorker(InjectFault::Kind kind) {
  return kind == InjectFault::KILL_WORKER || kind == InjectFault::HANG_WORKER ||
         kind == InjectFault::STALL_LINK;
}

}  // namespace troupe::proto
