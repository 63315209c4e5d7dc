// STEP WATCH: what the network sees of workflow runs' steps, and what must hold of that: a gateway that has
// been told that a step is committed asks no node for it again, unless its outputs were only kept: those may be lost; no
// node is asked for a step whose condition says that it does not run. A
// run is known by what its input says, which goes through all of its steps; a step by its function.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "proto/workflow.pb.h"
#include "sim/network.hpp"

namespace troupe::sim {

class StepWatch final : public NetworkTap {
 public:
  using Now = std::function<Time()>;
  explicit StepWatch(Now now) : now_(std::move(now)) {}
  // How it learns what an input says that a node keeps.
  void ReadKept(std::function<std::string(const proto::KeptTensor&)> read) { read_kept_ = std::move(read); }
  // Each step of the workflow calls a function of its own.
  void Know(const std::string& workflow, std::map<std::string, std::string> function_of_step) {
    workflow_ = workflow;
    function_of_step_ = std::move(function_of_step);
  }
  // The step that calls this function runs only for inputs of which this is said.
  void Expect(const std::string& function, std::function<bool(const std::string& input)> runs) {
    conditional_ = function;
    runs_ = std::move(runs);
  }
  void Sent(const Passage& passage, const caf::message& content) override;
  void Arrives(const Passage& passage, caf::message& content) override;
  // A line for each rule that was broken.
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }
  // Runs that a gateway was told to go on with, or found begun, with steps behind them.
  [[nodiscard]] std::uint64_t resumed() const { return resumed_; }
  // A planted error: gateways are told of no step that was committed before they had the run.
  void HideSteps() { hide_ = true; }

 private:
  struct Step {
    std::string gateway, input, function;
    auto operator<=>(const Step&) const = default;
  };
  void Told(const std::string& gateway, const proto::RunRecord& run);

  const Now now_;
  std::function<std::string(const proto::KeptTensor&)> read_kept_;
  std::string workflow_;
  std::map<std::string, std::string> function_of_step_;
  std::string conditional_;
  std::function<bool(const std::string& input)> runs_;
  std::map<Step, Time> told_;
  std::uint64_t resumed_ = 0;
  bool hide_ = false;
  std::vector<std::string> broken_;
};

}  // namespace troupe::sim
