// The newest view of the cluster, for the gateway's threads: the router replaces it, everybody else reads.
// Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "cluster/cluster_view.hpp"

namespace troupe::actors {

using ViewSnapshot = std::shared_ptr<const cluster::ClusterView>;

class ViewCell {
 public:
  void Set(ViewSnapshot view, std::size_t nodes) {
    const std::lock_guard lock(mutex_);
    view_ = std::move(view);
    nodes_ = nodes;
  }
  // Never null: an empty view before the first join.
  [[nodiscard]] ViewSnapshot Get() const {
    const std::lock_guard lock(mutex_);
    return view_;
  }
  // Nodes that grant credits now.
  [[nodiscard]] std::size_t nodes() const {
    const std::lock_guard lock(mutex_);
    return nodes_;
  }

 private:
  mutable std::mutex mutex_;
  ViewSnapshot view_ = std::make_shared<const cluster::ClusterView>();  // guarded by mutex_
  std::size_t nodes_ = 0;                                               // guarded by mutex_
};

}  // namespace troupe::actors
