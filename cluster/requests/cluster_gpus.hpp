// CLUSTER GPUS: the GPUs of all nodes as one router sees them: which models each has, what this router has sent there, and
// what others have. Owned by the router's gpu turns.
//
// Nodes tell of their GPUs with their grants, and what they tell replaces what was believed. In between the view moves as
// the node will move it: a model that a request brings is there at once, and the least recently used models go for it.
// `used` is by what this router sent, so routers of one cluster may believe different things until the next grant.
//
//   a GPU:  unknown -(told)-> idle <-(sent, returned)-> busy;  any -(its worker or node is lost)-> out
//
// A GPU that is out is neither idle nor a holder of models; it is back when its node tells that it is ready.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "proto/request.pb.h"
#include "scheduling/backlog.hpp"

namespace troupe::cluster {

// A GPU of the cluster: its node, and its index there.
struct GpuPlace {
  std::string node{};
  std::uint32_t gpu = 0;
  auto operator<=>(const GpuPlace&) const = default;
};

// What a request takes of a GPU, as its node estimates it.
struct GpuCost {
  Duration load{};  // to bring its model from the host
  Duration run{};
  Bytes bytes{};      // of its model's weights
  Bytes run_bytes{};  // of its run beside them
};

class ClusterGpus {
 public:
  // Of idle GPUs, the ones that were sent most come first; or they come in the order of their places.
  enum class IdleOrder { kMostUsed, kByPlace };
  struct IdleGpu {
    std::uint64_t used = 0;  // requests that this router sent there, where the order is kMostUsed
    GpuPlace place{};
    bool operator<(const IdleGpu& other) const {
      return std::tie(other.used, place) < std::tie(used, other.place);
    }
  };
  // A request that this router has sent to a GPU.
  struct Sent {
    std::string model{};
    Duration work{};     // what was expected of it then
    bool alone = false;  // it lost a worker or node before: nothing is sent to wait behind it
  };

  explicit ClusterGpus(IdleOrder order) : order_(order) {}

  // What a node tells of its GPUs and models. A grant says nothing of a GPU or a model that is as it was told before.
  void Apply(const proto::CreditGrant& grant);
  // A node that is gone: its GPUs are unknown.
  void Remove(const std::string& node);
  // Its worker is gone: the GPU is out until its node tells of it again.
  void Lose(const GpuPlace& place);
  // A request was sent to the GPU under this ticket; its reply has come.
  void Send(const GpuPlace& place, std::uint64_t ticket, Sent sent, Time now);
  void Return(const GpuPlace& place, std::uint64_t ticket, Time now);

  // The first idle GPU behind `after`, or the first of all. A GPU is idle when neither this router nor, as far as its
  // node told, others have a request there.
  [[nodiscard]] std::optional<IdleGpu> NextIdle(const std::optional<IdleGpu>& after) const;
  [[nodiscard]] bool IsIdle(const GpuPlace& place) const;
  // Some request waits or runs there alone.
  [[nodiscard]] bool HasAlone(const GpuPlace& place) const;
  // GPUs that have the model, or are getting it; null: none.
  [[nodiscard]] const std::set<GpuPlace>* Holders(const std::string& model) const;
  [[nodiscard]] bool Has(const GpuPlace& place, const std::string& model) const;
  // The models of one GPU, with the count of sendings at which each was used last.
  [[nodiscard]] const std::map<std::string, std::uint64_t>& ModelsOf(const GpuPlace& place) const;
  // Estimated time until what the GPU was given has run.
  [[nodiscard]] Duration Left(const GpuPlace& place, Time now) const;
  // Zeros for a model of which the node has told nothing.
  [[nodiscard]] GpuCost CostOf(const GpuPlace& place, const std::string& model) const;
  // The model with one run fits into the empty GPU, or into no GPU that is known: then its node says so.
  [[nodiscard]] bool Fits(const GpuPlace& place, const std::string& model) const;

  // Whether the node has told of GPUs; and else why it withholds them, if it says so.
  [[nodiscard]] bool Tells(const std::string& node) const;
  [[nodiscard]] std::string Withheld(const std::string& node) const;
  // Ends the process when an index does not agree with the GPUs.
  void Check() const;

 private:
  struct Gpu {
    bool ready = false;
    std::uint32_t kind = 0;
    Bytes memory{};
    std::uint64_t others = 0;
    Duration others_left{};
    std::map<std::string, std::uint64_t> models{};
    std::map<std::uint64_t, Sent> sent{};  // by ticket, so in the order of sending
    Backlog work{};                        // of `sent`
    std::uint64_t used = 0;

    [[nodiscard]] bool Idle() const { return ready && others == 0 && sent.empty(); }
  };
  struct Node {
    std::map<std::uint32_t, Gpu> gpus{};
    std::map<std::string, std::vector<GpuCost>> costs{};  // by model, then by kind
    std::string withheld{};
  };
  [[nodiscard]] const Gpu* Find(const GpuPlace& place) const;
  [[nodiscard]] Gpu* Find(const GpuPlace& place);
  [[nodiscard]] IdleGpu IdleAs(const GpuPlace& place, const Gpu& gpu) const;
  // Before and after a change of whether the GPU is idle.
  void LeaveIdle(const GpuPlace& place, const Gpu& gpu) { idle_.erase(IdleAs(place, gpu)); }
  void MayBeIdle(const GpuPlace& place, const Gpu& gpu);
  void Told(const GpuPlace& place, Gpu& gpu, const proto::GpuStanding& standing);
  void Add(const GpuPlace& place, Gpu& gpu, const std::string& model);
  void Drop(const GpuPlace& place, Gpu& gpu, const std::string& model);
  void DropAll(const GpuPlace& place, Gpu& gpu);
  void Use(const GpuPlace& place, Gpu& gpu, const std::string& model);
  // The least recently used model that no request sent there needs; empty: none.
  [[nodiscard]] std::string Victim(const Gpu& gpu, const std::string& keep) const;
  [[nodiscard]] Bytes Taken(const GpuPlace& place, const Gpu& gpu) const;
  [[nodiscard]] bool Room(const Gpu& gpu, const GpuCost& cost) const;

  const IdleOrder order_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::set<GpuPlace>> holders_;
  std::set<IdleGpu> idle_;
  std::uint64_t uses_ = 0;
};

}  // namespace troupe::cluster
