// COMMAND PROVISIONER: orders go to a command of the operator's, one at a time:
//
//   sh -c 'COMMAND "$@"' provision replace NODE | add | drain NODE        (the order's JSON on standard
//   input)
//
// Exit code 0: taken up. It has `timeout`; then it and all that it started in its session are killed. What it
// wrote last is the reason of a failure.
#pragma once

#include <atomic>
#include <string>

#include "actors/core/work_pool.hpp"
#include "actors/seams/node_provisioner.hpp"
#include "base/units.hpp"

namespace troupe::actors {

class CommandProvisioner final : public NodeProvisioner {
 public:
  explicit CommandProvisioner(std::string command, Duration timeout = std::chrono::minutes(2))
      : command_(std::move(command)), timeout_(timeout) {}
  // Kills a command that runs.
  ~CommandProvisioner() override { stopping_ = true; }

  void Carry(ProvisionOrder order, std::function<void(absl::Status)> done) override;

 private:
  absl::Status Run(const ProvisionOrder& order) const;

  const std::string command_;
  const Duration timeout_;
  std::atomic<bool> stopping_ = false;
  WorkPool pool_{1, 64};  // ends first
};

}  // namespace troupe::actors
