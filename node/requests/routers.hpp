// ROUTERS: the routers that said hello to this node, with their credits, and what each of them was told last.
#pragma once

#include <cstdint>
#include <map>

#include "node/events.hpp"
#include "node/requests/credit_ledger.hpp"
#include "node/requests/gpu_reports.hpp"
#include "node/requests/served_models.hpp"
#include "node/requests/work_reports.hpp"

namespace troupe::node {

struct Parts;

class Routers {
 public:
  explicit Routers(Parts& parts) : parts_(parts), gpu_reports_(parts), work_reports_(parts) {}

  void On(const RouterSaidHello& event);
  void On(const RouterLost& event);
  void On(const Joined& event);  // this node has a new life: routers forget what they knew of it
  void OnGrantTimer();
  void OnWorkTimer();

  // Routers learn the limits that changed, and what is adopted and resident now.
  void GrantAll();
  // The same, a little later, together with other changes.
  void GrantSoon();
  // Another number of GPUs is fit, or the node begins or ends to drain.
  void UpdateCapacity();
  // The models on the GPUs may have changed; 250 ms later routers know all the same.
  void ResidencyChanged() { ++residency_; }

  // A GPU was given a request: routers that name GPUs learn of it soon.
  void StandingChanged() {
    if (!gpu_reports_.empty()) GrantSoon();
  }
  // A request came or ended: the routers that did not send it learn of it soon, if it makes a difference to them.
  void WorkChanged();
  // What is known of the model's runs or loads has changed: routers that name GPUs learn of it.
  void CostChanged(const ModelNumber& model) { gpu_reports_.CostChanged(model); }

  // It has said hello, and is not lost.
  [[nodiscard]] bool Knows(std::uint64_t router) const { return routers_.contains(router); }
  [[nodiscard]] CreditLedger& ledger() { return ledger_; }
  [[nodiscard]] ServedModels& served() { return served_; }
  [[nodiscard]] const ServedModels& served() const { return served_; }

 private:
  // What a router was told last: revisions, 0 for nothing yet.
  struct Told {
    std::uint64_t served = 0;     // of ServedModels
    std::uint64_t residency = 0;  // of the GPUs' models
    std::uint64_t grant = 0;      // the number of the last one
  };
  // The router has had the last grant, and so knows all that it was told.
  [[nodiscard]] bool KnowsAllTold(const proto::RouterHello& hello) const;
  [[nodiscard]] proto::CreditGrant GrantFor(std::uint64_t router);

  Parts& parts_;
  std::map<std::uint64_t, Told> routers_;
  CreditLedger ledger_;
  ServedModels served_;
  GpuReports gpu_reports_;    // of routers that name GPUs
  WorkReports work_reports_;  // of the others
  std::uint64_t residency_ = 1;
  bool granting_ = false;  // timers that have not fired
  bool reporting_ = false;
  bool dirty_ = false;
};

}  // namespace troupe::node
