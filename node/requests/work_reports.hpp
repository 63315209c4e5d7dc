// WORK REPORTS: what grants tell the routers that choose among nodes: how much of this node's work is not theirs, in estimated time
// of its GPUs. A router is told with each grant, and again when the work of others has become clearly more or less.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/units.hpp"
#include "proto/request.pb.h"

namespace troupe::node {

struct Parts;

class WorkReports {
 public:
  explicit WorkReports(Parts& parts) : parts_(parts) {}

  void Forget(std::uint64_t router) { told_.erase(router); }
  void SetFitGpus(std::uint32_t gpus) { fit_gpus_ = gpus; }
  // Puts what the router is to know into its grant.
  void Fill(std::uint64_t router, proto::CreditGrant& grant);
  // Some router believes that others have work here.
  [[nodiscard]] bool ToldOfAny() const;
  // The routers that were told something else, in order.
  [[nodiscard]] std::vector<std::uint64_t> Due() const;

 private:
  Parts& parts_;
  std::uint32_t fit_gpus_ = 0;
  std::map<std::uint64_t, Duration> told_;  // by router
};

}  // namespace troupe::node
