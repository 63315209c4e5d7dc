// METER ACCESS: how the node controller reaches what its workers counted, and the file of its usage ledger. The
// node role makes it over files; simulations over tables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/usage.pb.h"

namespace troupe::actors {

// All of it returns at once; what it calls back may come on any thread. Empty: the node does not meter.
struct MeterAccess {
  using Pages = std::vector<proto::MeterReading>;
  std::function<void(std::function<void(absl::StatusOr<Pages>)> done)> read;
  std::function<void(const std::string& page)> drop;
  // OK: it is durable. One at a time.
  std::function<void(proto::NodeUsage usage, std::function<void(absl::Status)> done)> save;
  std::function<std::int64_t()> unix_now;

  explicit operator bool() const { return read != nullptr; }
};

}  // namespace troupe::actors
