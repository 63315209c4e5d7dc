// METERING: what each tenant and function used, as running totals. Owned by a router; counts are added, never
// reset.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/units.hpp"

namespace troupe::cluster {

struct Usage {
  std::uint64_t requests = 0;
  std::uint64_t failed = 0;
  std::uint64_t hits = 0;
  std::uint64_t slo_met = 0;
  Bytes input_bytes{};
  Duration compute{};  // GPU time
  Duration swap{};

  Usage& operator+=(const Usage& other);
};

class Metering {
 public:
  explicit Metering(std::size_t max_functions = 100000) : max_functions_(max_functions) {}
  // Beyond `max_functions` names a new function counts for its tenant only, and a new tenant not at all.
  void Add(const std::string& tenant, const std::string& function, const Usage& usage);
  [[nodiscard]] const std::map<std::string, Usage>& tenants() const { return tenants_; }
  [[nodiscard]] const std::map<std::string, Usage>& functions() const { return functions_; }

 private:
  std::size_t max_functions_;
  std::map<std::string, Usage> tenants_;
  std::map<std::string, Usage> functions_;
};

}  // namespace troupe::cluster
