// Which models a request could be sent for now: the router publishes it, the gateway's threads read it.
//
//   starting --(every loaded function is servable, or kSettleTime has passed since the first node)--> settled
//
// A gateway that starts counts as ready once it has settled: a probe that lets clients in earlier would let
// them wait for models that nodes are still bringing back. One model that cannot come back does not keep the
// gateway out for ever.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cluster/credit_table.hpp"

namespace troupe::actors {

// Thread-safe.
class ServableModels {
 public:
  static constexpr Duration kSettleTime = std::chrono::seconds(30);

  // The router calls it when these models, by canonical digest, may have become servable or not.
  void Publish(const cluster::CreditTable& credits, const std::vector<std::string>& models);
  // A node that does not drain has a host copy of the model.
  [[nodiscard]] bool Has(const std::string& digest) const;

  [[nodiscard]] bool settled() const { return settled_; }
  // Asked while a node takes requests and the gateway has not settled: does it now?
  bool Settle(bool all_servable, Time now);

 private:
  mutable std::mutex mutex_;
  std::set<std::string> models_;    // guarded by mutex_
  std::optional<Time> first_node_;  // guarded by mutex_
  std::atomic<bool> settled_ = false;
};

// The models that `node` holds. Empty for a node that is not known.
[[nodiscard]] std::vector<std::string> ModelsOf(const cluster::CreditTable& credits, const std::string& node);
// The models that may become servable, or not servable any more, when the grant is applied.
[[nodiscard]] std::vector<std::string> ModelsTouchedBy(const cluster::CreditTable& credits,
                                                       const proto::CreditGrant& grant);

}  // namespace troupe::actors
