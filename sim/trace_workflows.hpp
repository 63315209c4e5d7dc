// TRACE WORKFLOWS: the workflows of a workload, as they are submitted to the manager. Each function with a list `then`
// (TraceFunction) begins a workflow: the functions of the list are its next steps and read the first one's output, and so on. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/traces/workload.hpp"

namespace troupe::sim {

// What all steps have in common.
struct StepTerms {
  Duration timeout{};    // in whole milliseconds
  bool written = false;  // outputs are written before they are read; else they stay where they were computed
};

struct TraceWorkflow {
  std::uint32_t first = 0;  // its first function
  std::string name{};
  std::string yaml{};
  std::uint32_t depth = 0;  // steps one behind the other, at most
};

struct TraceWorkflows {
  // One for each function that others come after, in the order of these functions. A function that comes after two others is a
  // step behind each of them.
  std::vector<TraceWorkflow> all{};
  // By function: the most that one of its runs reads of a function before it; zero for a function that comes after none.
  std::vector<Bytes> bytes_read{};

  // The one whose first step is this function; null: there is none.
  [[nodiscard]] const TraceWorkflow* BegunBy(std::uint32_t function) const;
};
[[nodiscard]] TraceWorkflows WorkflowsOf(const std::vector<TraceFunction>& functions, const StepTerms& terms);

}  // namespace troupe::sim
