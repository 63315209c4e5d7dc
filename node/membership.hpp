// MEMBERSHIP: what this node knows of the cluster, and what the cluster is told of this node.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cluster/cluster_view.hpp"
#include "node/events.hpp"
#include "node/scheduling/owned_gpus.hpp"
#include "proto/admin.pb.h"

namespace troupe::node {

struct Parts;

class Membership {
 public:
  explicit Membership(Parts& parts) : parts_(parts) {}

  void On(const ClusterChanged& event);
  void On(const Joined& event);
  void On(const ReportAsked& event);
  void On(const DrainAsked& event);

  // While no manager is heard: what it said before. Whatever a manager says is newer.
  void Assume(const proto::ClusterUpdate& known);
  [[nodiscard]] proto::NodeLoad Load() const;
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }  // 0: no manager was heard
  // Whether this node had the epoch at some time since this daemon began.
  [[nodiscard]] bool HadEpoch(std::uint64_t epoch) const {
    return first_epoch_ != 0 && epoch >= first_epoch_ && epoch <= epoch_;
  }
  [[nodiscard]] const cluster::ClusterView& view() const { return view_; }
  void DescribeOwned(proto::NodeDescription& node) const;
  // The last report for a join named the model.
  [[nodiscard]] bool Told(const std::string& digest) const { return told_.contains(digest); }

 private:
  void Learn(const proto::ClusterUpdate& update);
  // Which parts of this node's GPUs the changed functions own.
  void LearnPlaces(const cluster::ViewChange& change);
  [[nodiscard]] std::vector<OwnedGpus::Part> PartsOf(const std::string& name) const;
  [[nodiscard]] proto::MemberReport Report(const proto::DescribeMember& wish);

  Parts& parts_;
  cluster::ClusterView view_;
  std::uint64_t epoch_ = 0;
  std::uint64_t first_epoch_ = 0;  // of this daemon
  std::set<std::string> told_;
  std::set<std::string> owners_;  // functions that own a part of a GPU of this node
};

}  // namespace troupe::node
