// A reply that says what went wrong (or, for OK, nothing).
#pragma once

#include "absl/status/status.h"
#include "base/wire_status.hpp"

namespace troupe::cluster {

template <class Reply>
[[nodiscard]] Reply Failure(const absl::Status& status) {
  Reply reply;
  SetStatus(status, reply);
  return reply;
}

}  // namespace troupe::cluster
