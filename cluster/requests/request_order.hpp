// REQUEST ORDER: which waiting request comes before which: the ordering policy's key, the place of its function
// where functions are ordered by their SLOs, and a place behind the others for a late request where late requests
// yield.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "cluster/requests/request_entry.hpp"
#include "scheduling/cost_model.hpp"
#include "scheduling/late_queue.hpp"
#include "scheduling/slo_order.hpp"

namespace troupe::cluster {

class RequestOrder {
 public:
  explicit RequestOrder(OrderingPolicy ordering);

  // The key of a request that has arrived.
  void Begin(RequestEntry& entry, Time now);
  // The request waits from now on, under the key that Enter leaves in `entry`; or it waits no more.
  void Enter(RequestEntry& entry);
  void Leave(const RequestEntry& entry);
  // How a request ended counts for its function.
  void Ended(const RequestEntry& entry, const absl::Status& status, Time now);
  void ObserveRun(const std::string& model, Duration run);

  // Whether functions may have changed places; then Moved says of which waiting request.
  [[nodiscard]] bool Reorder(Time now) { return slo_ && slo_->Reorder(now); }
  // Of the policies that order functions by their SLO (scheduling/slo_order.hpp); 0: the policy has none.
  [[nodiscard]] double alpha() const { return slo_ ? slo_->alpha() : 0; }
  [[nodiscard]] bool Moved(const RequestEntry& entry) const;
  // A waiting request that has become late, and is to have its LateKey.
  [[nodiscard]] std::optional<std::uint64_t> NextLate(Time now) const;
  // A request was sent. Where late requests yield, the late request that may go next for it.
  [[nodiscard]] std::optional<std::uint64_t> Gone(const RequestEntry& sent);
  // Whether late requests yield, and this request is late.
  [[nodiscard]] bool Yields(const RequestEntry& entry) const { return late_ && IsLate(entry.key); }
  // Nothing where late requests do not yield.
  [[nodiscard]] std::optional<std::size_t> CountLate() const;

 private:
  const OrderingPolicy ordering_;
  std::optional<SloOrder<std::string>> slo_;
  std::optional<LateQueue<std::uint64_t, std::string>> late_;
  CostModel costs_{{.run = Duration::zero()}};  // of runs that found their models, where late ones yield
  std::uint64_t next_ = 0;
};

}  // namespace troupe::cluster
