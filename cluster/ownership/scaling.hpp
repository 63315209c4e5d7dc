// SCALING: the manager's autoscaler. Once a second, and sooner while it is urgent, it looks at the functions whose quota_request is left to the manager:
// it foresees their load, and says for how much of which GPUs' time they own a part (001, section 3.4). The ownership plan
// (ownership/ownership_plan.hpp) asks it when it has placed everything else, so that both book in one table; what it
// decides is stored with the functions as any other part of a GPU.
//
// What it has observed is not stored: after a restart of the manager the functions own what they did, and forecasts begin
// anew.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/autoscaling/scaled_functions.hpp"
#include "cluster/events.hpp"
#include "cluster/ownership/function_loads.hpp"
#include "cluster/ownership/scaled_owners.hpp"
#include "cluster/profiled_runs.hpp"

namespace troupe::cluster {

struct Parts;

class Scaling {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);  // between two looks
  // While requests wait at a gateway that no node has room for, or more come than the instances can serve.
  static constexpr Duration kSoon = std::chrono::milliseconds(250);
  // Demand is foreseen until the look after the next one.
  static constexpr Duration kAhead = std::chrono::seconds(2);
  static constexpr Duration kWindow = std::chrono::seconds(1);  // of quotas

  explicit Scaling(Parts& parts) : parts_(parts) {}

  void Hear(const proto::Heartbeat& heartbeat);
  // There is a function to look at, and the latest look is long enough ago.
  [[nodiscard]] bool Due();
  // The functions of which a load was told since the latest look, and the functions that declare min_instances.
  [[nodiscard]] std::vector<FunctionVersion> Asked() const;
  // A look.
  void Rescale(RectangleTable& table, InstanceId& last_id, ScaledOwners& owners);
  // Whether the function owns parts of GPUs or is bound late, and why; "": it is not scaled.
  [[nodiscard]] std::string BindingOf(const proto::FunctionRecord& record) const;
  // How a function is scaled; its decisions, the oldest first.
  void Show(Ask ask, const proto::FunctionKey& key) const;

 private:
  // What is observed of a function that was not looked at for so long is forgotten.
  static constexpr Duration kKept = std::chrono::hours(1);
  // A function that has a scaler.
  struct Known {
    std::string digest{};       // of its model
    ScaledFunction function{};  // as its scaler knows it
    Time looked{};
    bool is_new = true;   // it was not looked at yet
    double capacity = 0;  // then, requests a second
  };

  // A function that has instances was asked for more than these can serve, in the time since the latest look.
  [[nodiscard]] bool Surges() const;
  [[nodiscard]] FunctionScaler* ScalerOf(const proto::FunctionRecord& record, const GpuKinds& kinds);
  void ForgetOthers();
  // Where the nodes with a copy have no room for the instances that are wanted, and others have, these are to get one.
  void WantCopies(const FunctionScaler& scaler, const Known& known, const NodeNames& holders,
                  const RectangleTable& table) const;
  void Describe(const FunctionScaler& scaler, const FunctionVersion& version,
                proto::ScalingStatus& status) const;

  Parts& parts_;
  FunctionLoads loads_;
  ScaledFunctions functions_{kWindow};
  std::map<FunctionVersion, Known> known_;
  Time looked_{};
};

}  // namespace troupe::cluster
