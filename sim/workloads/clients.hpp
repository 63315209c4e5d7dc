// CLIENTS: the people who use a cluster while things go wrong: requests at every gateway, operators who
// deploy, remove and look, sequences of requests, runs of a workflow, nodes that are drained and taken back. They behave as clients
// do: they time out, they cancel, they ask again elsewhere, they send a command twice, and a request with its
// key at several gateways. What they saw is in their ledger and their history.
#pragma once

#include "sim/workloads/canaries.hpp"
#include "sim/workloads/client_load.hpp"
#include "sim/workloads/operators.hpp"
#include "sim/workloads/redeployments.hpp"
#include "sim/workloads/request_clients.hpp"
#include "sim/workloads/returning_clients.hpp"
#include "sim/workloads/sequence_clients.hpp"
#include "sim/workloads/sharing_updates.hpp"

namespace troupe::sim {

class Clients {
 public:
  Clients(ChaosCluster& cluster, const WorkloadPlan& plan, const Random& random)
      : load_(cluster, plan, random),
        requests_(load_),
        operators_(load_),
        returning_(load_, requests_),
        sequences_(load_, requests_),
        redeployed_sequences_(load_, requests_, ClientLoad::kAnew),
        updates_(load_),
        canaries_(load_, requests_, operators_),
        redeployments_(load_, requests_, operators_) {}

  // Begins; everything they do has begun by the plan's length. The operators have prepared what is there.
  void Begin();
  // Nothing that was asked or commanded is without an answer.
  [[nodiscard]] bool Idle() const {
    return requests_.ledger().open() == 0 && operators_.Idle() && updates_.Idle();
  }

  [[nodiscard]] const ClientLoad& load() const { return load_; }
  [[nodiscard]] RequestClients& requests() { return requests_; }
  [[nodiscard]] Operators& operators() { return operators_; }
  [[nodiscard]] SharingUpdates& updates() { return updates_; }
  [[nodiscard]] Canaries& canaries() { return canaries_; }
  [[nodiscard]] const RequestLedger& ledger() const { return requests_.ledger(); }
  [[nodiscard]] const std::vector<RegistryOp>& history() const { return operators_.history(); }

 private:
  ClientLoad load_;
  RequestClients requests_;
  Operators operators_;
  ReturningClients returning_;
  SequenceClients sequences_;
  SequenceClients redeployed_sequences_;
  SharingUpdates updates_;
  Canaries canaries_;
  Redeployments redeployments_;
};

}  // namespace troupe::sim
