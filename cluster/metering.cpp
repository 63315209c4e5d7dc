#include "cluster/metering.hpp"

namespace troupe::cluster {

Usage& Usage::operator+=(const Usage& other) {
  requests += other.requests;
  failed += other.failed;
  hits += other.hits;
  slo_met += other.slo_met;
  input_bytes += other.input_bytes;
  compute += other.compute;
  swap += other.swap;
  return *this;
}

void Metering::Add(const std::string& tenant, const std::string& function, const Usage& usage) {
  if (tenants_.size() < max_functions_ || tenants_.contains(tenant)) tenants_[tenant] += usage;
  if (functions_.size() < max_functions_ || functions_.contains(function)) functions_[function] += usage;
}

}  // namespace troupe::cluster
