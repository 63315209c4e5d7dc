// What must hold of the tensors that workers keep between the steps of workflow runs: when all runs have ended, no worker keeps
// one, and no copy of one lies in an arena.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/workflow.pb.h"

namespace troupe::sim {

// Some output of the step is where it was computed, and nowhere else.
[[nodiscard]] bool OnlyKept(const proto::CommitStep& step);

struct KeptThere {
  std::string where{};        // a worker or a member
  std::uint64_t tensors = 0;  // that a worker keeps
  std::uint64_t bytes = 0;    // in an arena
};
// A line for each place where something is left.
[[nodiscard]] std::vector<std::string> CheckTensors(const std::vector<KeptThere>& kept);

}  // namespace troupe::sim
