// SIMULATED FRONT: what stands between a client and a gateway's front: in production its HTTP server. It keeps
// answers by the client's Idempotency-Key in the production table, and counts in the production statistics.
// One for each life of a gateway.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/gateway/function_statistics.hpp"
#include "gateway/idempotency.hpp"
#include "proto/request.pb.h"
#include "sim/checkers/count_check.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

class SimulatedFront : public std::enable_shared_from_this<SimulatedFront> {
 public:
  // `again`: it is the answer that another request with the same key was given.
  using Done = std::function<void(const proto::InferReply& reply, bool again)>;
  SimulatedFront(World& world, GatewayCount who, std::size_t index)
      : world_(world), who_(std::move(who)), index_(index) {}

  // `done` is called once, also when the gateway dies.
  void Infer(proto::InferRequest request, const std::string& key, Done done);
  void Cancel(std::uint64_t call);
  // The front's name, and what it counted until now.
  [[nodiscard]] GatewayCount count() const;

  // --- planted errors ---
  void ForgetKeys() { forgets_ = true; }  // each request is taken for the first with its key
  void CountTwice() { counts_twice_ = true; }
  void IgnoreConditions() { ignores_ = true; }  // the condition of each run is true
  void ChangeRunKeys() { changes_ = true; }     // a run's key that comes again is another key
  // So many requests of this function's that name no version, one of them goes to its first version.
  void PinVersion(const std::string& function, std::uint64_t every) { pinned_ = {function, every, 0}; }

 private:
  using Table = gateway::IdempotencyTable;
  void InferOnce(proto::InferRequest request, const std::string& key, Done done);
  void Pin(proto::InferRequest& request);
  void Ask(proto::InferRequest request, std::function<void(const proto::InferReply&)> done);

  World& world_;
  const GatewayCount who_;
  const std::size_t index_;
  Table keys_;
  actors::FunctionStatistics statistics_;
  bool forgets_ = false, counts_twice_ = false, changes_ = false, ignores_ = false;
  std::uint64_t changed_ = 0;
  struct {
    std::string function;
    std::uint64_t every = 0, asked = 0;
  } pinned_;
};

}  // namespace troupe::sim
