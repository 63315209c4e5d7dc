// NESTING: workflows whose steps are workflows. Which workflow a step calls is decided when it is called, so each change
// of what workflows there are is checked: none may come to call itself, and none may be deeper than a limit. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "proto/workflow.pb.h"

namespace troupe::cluster {

// A version of a workflow; "": the newest. Null: there is none.
using FindWorkflow =
    std::function<const proto::WorkflowRecord*(const std::string& name, const std::string& version)>;

class Nesting {
 public:
  // Runs inside each other: a workflow without steps that are workflows is 1 deep.
  static constexpr std::size_t kDeepest = 8;
  explicit Nesting(FindWorkflow find) : find_(std::move(find)) {}

  // What is wrong with a step of `caller` that calls `called`, with the path of names; "": nothing.
  [[nodiscard]] std::string WrongWith(const proto::WorkflowSpec& caller, const proto::WorkflowSpec& called);
  // What is wrong with any of its steps.
  [[nodiscard]] std::string WrongWith(const proto::WorkflowSpec& workflow);

 private:
  // How deep it is; 0: something is wrong, which is in `wrong_`.
  std::size_t DepthOf(const proto::WorkflowSpec& workflow);
  [[nodiscard]] std::string Path(const proto::WorkflowSpec& last) const;

  const FindWorkflow find_;
  std::map<const proto::WorkflowSpec*, std::size_t> depths_;
  std::vector<const proto::WorkflowSpec*> path_;
  std::string wrong_;
};

// What FindWorkflow finds once `added` is there as well. Both outlive it. An empty version of `added` is its next one.
[[nodiscard]] FindWorkflow FindWith(FindWorkflow find, const proto::WorkflowRecord& added);

}  // namespace troupe::cluster
