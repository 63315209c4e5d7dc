// PLACEMENT: the waiting requests of one router, and where each goes next: to a node by the routing policy, or, where the
// policy says so, to one GPU of one node (cluster/requests/gpu_turns.hpp). Owned by the request table.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/units.hpp"
#include "cluster/profiled_runs.hpp"
#include "cluster/requests/eligible_queue.hpp"
#include "cluster/requests/gpu_turns.hpp"
#include "cluster/requests/node_runs.hpp"
#include "cluster/requests/request_index.hpp"
#include "cluster/requests/request_order.hpp"
#include "cluster/requests/sendings.hpp"
#include "cluster/routing_policy.hpp"
#include "scheduling/running_estimate.hpp"

namespace troupe::cluster {

class Placement {
 public:
  struct Target {
    std::string node{};
    std::optional<std::uint32_t> gpu{};  // of the node; empty: the node chooses
    Duration work{};                     // what the request is expected to take of a GPU; zero: not known
  };
  // Takes the request out of the queue.
  using SendTo = absl::FunctionRef<void(RequestEntry&, const Target&)>;

  // The references outlive this.
  Placement(const RoutingPolicy& routing, RequestIndex& requests, const RequestOrder& order,
            const CreditTable& credits);

  // A request waits from now on, or waits no more.
  void Add(const RequestEntry& entry);
  void Remove(const RequestEntry& entry);
  // Before and after a change of the model's holders.
  void Unindex(const std::string& model);
  void Index(const std::string& model);
  void Forget(const std::string& node);

  // The kinds of GPU that each node has.
  void SetKinds(std::map<std::string, GpuKinds> by_node) { kinds_ = std::move(by_node); }

  void Decide(Time now, SendTo send);

  // What happens to GPUs, where requests name them: a node has told of its GPUs; a request was sent; its reply has come; the
  // node had no worker on the GPU that the request named.
  void Told(const proto::CreditGrant& grant);
  void Sent(std::uint64_t ticket, const RequestEntry& entry, const Target& target, Time now);
  // A run that found its model on the GPU took so long.
  void Ran(const std::string& node, const std::string& model, Duration run) {
    runs_.Observe(model, node, run);
    any_run_.Observe(run);
  }
  void Returned(std::uint64_t ticket, const Sendings::Sending& sending, Time now);
  void GpuLost(const Sendings::Sending& sending);
  // What the node was sent and has not answered, in time of its GPUs; where requests name no GPUs.
  [[nodiscard]] Duration WorkAt(const std::string& node) const {
    const auto given = given_.find(node);
    return given == given_.end() ? Duration() : given->second;
  }
  // Requests name GPUs.
  [[nodiscard]] bool by_gpu() const { return by_gpu_.has_value(); }
  // Why no request of the model can be placed, though nodes hold it; empty: it can.
  [[nodiscard]] std::string Refusal(const std::string& model) const {
    return by_gpu_ ? by_gpu_->Refusal(model) : std::string();
  }

  [[nodiscard]] bool empty() const { return queue_.empty(); }
  [[nodiscard]] std::size_t size() const { return queue_.size(); }
  void Check() const;

 private:
  [[nodiscard]] bool HasPlace(const NodeCredit& node, const RequestEntry& entry) const;
  [[nodiscard]] NodeOption OptionOf(const RequestEntry& entry, const std::string& node) const;
  void LeaveOutByDeadline(const RequestEntry& entry, Time now, std::vector<NodeOption>& options) const;
  [[nodiscard]] RequestEntry* FirstFor(const std::string& node, const std::string& model, Time now);
  [[nodiscard]] RequestEntry* MostUrgent(Time now);
  // By its profiles on the node's fastest GPUs; else as it was learned. Zero: not known.
  [[nodiscard]] Duration RunAt(const RouterRequest& request, const std::string& node) const;
  [[nodiscard]] Duration WorkOf(const RequestEntry& entry, const std::string& node) const;
  [[nodiscard]] std::string ChooseNode(const RequestEntry& entry, Time now) const;

  const RoutingPolicy routing_;
  RequestIndex& requests_;
  const RequestOrder& order_;
  const CreditTable& credits_;
  EligibleQueue queue_{credits_};
  NodeRuns runs_;
  std::map<std::string, GpuKinds> kinds_;  // by node
  RunningEstimate any_run_;                // for models that have not run yet
  std::map<std::string, Duration> given_;  // by node
  std::optional<GpuTurns> by_gpu_;
};

}  // namespace troupe::cluster
