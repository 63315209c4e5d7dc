// The newest view of the cluster, for the gateway's threads: the router brings it up to date, all others
// read. A view that was handed out never changes.
//
// Two views take turns: an update goes to the view without readers, behind the update that it has missed, and
// is then shown. So an update costs what has changed, not what the cluster has; only while readers still have
// the other view, the newest is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "cluster/cluster_view.hpp"
#include "security/api_keys.hpp"

namespace troupe::actors {

using ViewSnapshot = std::shared_ptr<const cluster::ClusterView>;

class ViewCell {
 public:
  ViewCell();

  // One thread, the router's. An update that finds a gap (applied is false) changes nothing.
  cluster::ViewChange Apply(const proto::ClusterUpdate& update);
  void SetNodes(std::size_t nodes);

  // Any thread. Never null: an empty view before the first join.
  [[nodiscard]] ViewSnapshot Get() const;
  // Nodes that grant credits now, except draining ones.
  [[nodiscard]] std::size_t nodes() const;
  // The API keys that the cluster has, as it was told last. Null before the first join.
  [[nodiscard]] const std::shared_ptr<security::CurrentKeys>& keys() const { return keys_; }
  // How often a view had to be copied.
  [[nodiscard]] std::uint64_t copies() const { return copies_; }

 private:
  // Where the last reader of a view leaves it; it outlives the cell as long as there are readers.
  struct Rack {
    std::mutex mutex;
    std::uint64_t newest = 0;                     // guarded by mutex
    std::unique_ptr<cluster::ClusterView> spare;  // guarded by mutex; the one before the newest
  };
  [[nodiscard]] std::unique_ptr<cluster::ClusterView> TakeSpare();
  void SetKeys(const proto::ClusterUpdate& update);
  void Show(std::unique_ptr<cluster::ClusterView> view);

  const std::shared_ptr<Rack> rack_ = std::make_shared<Rack>();
  proto::ClusterUpdate last_;  // what the spare has missed
  std::uint64_t copies_ = 0;
  const std::shared_ptr<security::CurrentKeys> keys_ = std::make_shared<security::CurrentKeys>();
  mutable std::mutex mutex_;
  ViewSnapshot view_;      // guarded by mutex_
  std::size_t nodes_ = 0;  // guarded by mutex_
};

}  // namespace troupe::actors
