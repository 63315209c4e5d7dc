// DEADLINES: how the time that a run has left is split over the steps that are still to come. Pure.
//
// A step weighs its own `timeout`, or else an even part of the time left: 1/N of it, where N is how many steps the
// longest chain from this step to the end has. It gets as much of the time left as its weight is of the heaviest
// chain that begins with it, and never more than its `timeout`. What it does not use goes to the steps behind it,
// because each of them is given its share when it begins. The last step of a chain gets all that is left.
// What stands in for a step that fails (on_error) follows that step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

class StepDeadlines {
 public:
  // `spec` has been validated: its steps make no circle.
  explicit StepDeadlines(const proto::WorkflowSpec& spec);

  // Until when a step may take that begins now, in a run that ends at `expiry` at the latest.
  [[nodiscard]] Time Of(const proto::WorkflowStep& step, Time now, Time expiry) const;

 private:
  // A step as the chains behind it need it.
  struct Node {
    Duration timeout{};               // zero: none of its own
    std::size_t steps = 1;            // of the longest chain from here to the end, this step included
    std::vector<std::size_t> next{};  // steps that wait for it
  };
  // Behind the steps that wait for them: the order in which chains are added up.
  std::vector<std::size_t> order_;
  std::vector<Node> nodes_;
  std::map<std::string, std::size_t> index_;
};

}  // namespace troupe::cluster
