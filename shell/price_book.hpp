// PRICE BOOK: what used amounts cost, from a YAML file. Pure.
//
//   currency: EUR
//   gpu_hour: 2.40          # all SMs of one GPU for an hour
//   gpu_memory_gib: 80      # of such a GPU: a GiB of it costs gpu_hour / gpu_memory_gib an hour
//   host_percent: 10        # what a GiB in the host region costs of that; 10 when it is not given
//   gib_moved: 0.001        # over the links to GPUs; 0 when it is not given
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/usage.pb.h"

namespace troupe::shell {

struct PriceBook {
  std::string currency{};
  double gpu_hour = 0;
  double gpu_memory_gib = 0;
  double host_percent = 10;
  double gib_moved = 0;

  [[nodiscard]] double CostOf(const proto::UsageAmount& amount) const;
};

// InvalidArgument names the line, and for an unknown key the nearest one.
[[nodiscard]] absl::StatusOr<PriceBook> ParsePriceBook(const std::string& yaml);

// Hours of GPU time, times the share of SMs; hours of a GiB in the host region; GiB moved.
[[nodiscard]] double GpuHours(const proto::UsageAmount& amount);
[[nodiscard]] double HostGibHours(const proto::UsageAmount& amount);
[[nodiscard]] double GibMoved(const proto::UsageAmount& amount);

}  // namespace troupe::shell
