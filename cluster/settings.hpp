// What a cluster decides by.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/enum_names.hpp"
#include "base/units.hpp"
#include "cluster/copies/fetch_policy.hpp"
#include "cluster/copies/replica_policy.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/provisioning.hpp"
#include "proto/function.pb.h"

namespace troupe::cluster {

// What becomes of a decision how functions are scaled: the option `scaling-dry-run`.
enum class ScalingEffect {
  kCarriedOut,
  kShown,  // `troupe autoscale status` shows it, and nothing else follows from it
};
inline constexpr std::array<EnumName<ScalingEffect>, 2> kScalingEffects = {
    {{"off", ScalingEffect::kCarriedOut}, {"on", ScalingEffect::kShown}}};

// How functions that leave their quota_request to the manager follow their load.
struct ScalingSettings {
  std::string policy = "troupe";   // cluster/autoscaling/scaling_policy.hpp
  std::string forecast = "holt";   // cluster/autoscaling/demand_forecast.hpp
  std::string owning = "by-cost";  // cluster/autoscaling/owning_choice.hpp
  ScalingEffect effect = ScalingEffect::kCarriedOut;
};

struct ClusterSettings {
  MembershipLimits membership;
  std::uint32_t replicas = 2;  // host copies of each model, at least
  ReplicaPolicy replica_policy = ReplicaPolicy::kForecast;
  FetchPolicy fetch_policy = FetchPolicy::kRelay;
  Duration tick = std::chrono::milliseconds(50);
  Duration member_lease{};  // a member that has not heard for so long takes nothing new; zero: it goes on
  Duration placement_retry = std::chrono::seconds(2);  // after an adoption that failed
  // For a gateway to say that it has a run: after the manager's restart, or once it was told to go on with
  // it.
  Duration run_grace = std::chrono::seconds(2);
  // Between tries to take back from the store what it did not acknowledge.
  Duration take_back_retry = std::chrono::seconds(1);
  // How often objects that no function and no run refers to are removed from the disk, and how long they were
  // not used then: an upload is referred to only when its function is deployed.
  Duration collect_every = std::chrono::minutes(10);
  Duration collect_unused_for = std::chrono::hours(1);
  ScalingSettings scaling;
  bool provisions = false;  // machines for nodes can be ordered
  ProvisioningLimits provisioning;
  bool audited = false;  // each change has a line in the audit
  proto::Slo default_slo;
};

}  // namespace troupe::cluster
