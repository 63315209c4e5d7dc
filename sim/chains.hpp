// CHAINS: the workflows of a workload, where a function's answer brings the calls of the functions that come
// `then` (sim/traces/workload.hpp). A workflow begins with an arrival and ends with the last of its answers.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/traces/workload.hpp"

namespace troupe::sim {

struct WorkflowAnswer {
  std::uint32_t function = 0;  // the first
  Duration at{};               // of the arrival
  Duration took{};
  bool served = true;  // each of its calls was
};

class Chains {
 public:
  explicit Chains(const std::vector<TraceFunction>& functions) : functions_(functions) {}

  // The number of the run that an arrival begins; zero where `function` is not a workflow.
  [[nodiscard]] std::uint64_t Begin(std::uint32_t function, Duration at);
  // What is to be asked now, of the same run. A call that was not served is the last on its way.
  [[nodiscard]] std::vector<std::uint32_t> Answered(std::uint64_t run, std::uint32_t function, bool served,
                                                    Duration now);
  // In the order in which they ended.
  [[nodiscard]] const std::vector<WorkflowAnswer>& ended() const { return ended_; }

 private:
  struct Open {
    WorkflowAnswer answer;
    std::uint32_t calls = 1;  // without an answer
  };
  const std::vector<TraceFunction>& functions_;
  std::map<std::uint64_t, Open> open_;
  std::uint64_t next_ = 1;
  std::vector<WorkflowAnswer> ended_;
};

}  // namespace troupe::sim
