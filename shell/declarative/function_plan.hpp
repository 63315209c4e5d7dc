// FUNCTION PLAN: what has to change for one function. Private to plan.cpp.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "shell/declarative/plan.hpp"

namespace troupe::shell {

// A function as the cluster has it.
class KnownFunction {
 public:
  using Versions = std::map<std::uint64_t, proto::FunctionRecord>;

  explicit KnownFunction(Versions versions = {}) : versions_(std::move(versions)) {}

  [[nodiscard]] const Versions& versions() const { return versions_; }
  [[nodiscard]] std::uint64_t newest() const { return versions_.empty() ? 0 : versions_.rbegin()->first; }
  // By version, in percent; empty while the newest version gets all requests.
  [[nodiscard]] std::map<std::uint64_t, std::uint32_t> Shares() const;
  // The version that answers requests which name none: the stable one while there is a canary; 0: there is none.
  [[nodiscard]] std::uint64_t Answering() const;

 private:
  Versions versions_;
};

// "1: 90 %, 2: 10 %"; "the newest version gets all".
[[nodiscard]] std::string ShownShares(const std::map<std::uint64_t, std::uint32_t>& shares);
// The request that gives the versions of a function these shares; none: the newest version gets all.
[[nodiscard]] proto::AdminRequest SharesRequest(const std::string& name,
                                                const std::map<std::uint64_t, std::uint32_t>& shares);

// Adds to the plan what `function` needs.
[[nodiscard]] absl::Status PlanFunction(const FunctionManifest& function, const KnownFunction& known,
                                        const Present& present, Plan& plan);

}  // namespace troupe::shell
