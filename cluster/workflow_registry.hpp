// WORKFLOW REGISTRY: the submitted workflows, by name and version. Like the functions it changes only by
// applying records that were validated (cluster/workflow_validator.hpp) and stored. A workflow is called
// through the same endpoint as a function, so the two never share a name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/function_registry.hpp"
#include "cluster/workflows/nesting.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

class WorkflowRegistry {
 public:
  using Versions = std::map<std::uint64_t, proto::WorkflowRecord>;
  explicit WorkflowRegistry(std::size_t max_workflows = 10000) : max_workflows_(max_workflows) {}

  // The record as it would be stored, with its version. Errors: InvalidArgument, AlreadyExists (also when a
  // function has the name), ResourceExhausted.
  // InvalidArgument as well when other workflows would come to call each other in a circle, or too deep.
  [[nodiscard]] absl::StatusOr<proto::WorkflowRecord> ValidateSubmit(const proto::WorkflowRecord& wish,
                                                                     const FunctionTable& functions) const;
  // NotFound; FailedPrecondition when workflows would come to call each other in a circle, or too deep, because another
  // version is the newest then. An empty version: the newest.
  [[nodiscard]] absl::Status ValidateRemoval(const std::string& name, const std::string& version) const;
  void Apply(const proto::WorkflowRecord& record, Revision revision);
  // False: there is none. An empty version removes the newest.
  bool ApplyRemoval(const std::string& name, const std::string& version);

  // An empty version asks for the newest. Null: there is none.
  [[nodiscard]] const proto::WorkflowRecord* Find(const std::string& name, const std::string& version) const;
  [[nodiscard]] bool HasName(const std::string& name) const { return workflows_.contains(name); }
  // Workflows that call this function, or workflow, in any version: a removal warns of them.
  [[nodiscard]] std::vector<std::string> UsersOf(const std::string& function) const;
  [[nodiscard]] const std::map<std::string, Versions>& workflows() const { return workflows_; }
  [[nodiscard]] std::size_t size() const;
  // The registry outlives it.
  [[nodiscard]] FindWorkflow Finder() const {
    return [this](const std::string& name, const std::string& version) { return Find(name, version); };
  }

 private:
  // What is wrong with the steps of those workflows that call `name`, when `find` tells what there is; "": nothing.
  [[nodiscard]] std::string WrongWithCallersOf(const std::string& name, const FindWorkflow& find) const;

  std::size_t max_workflows_;
  std::map<std::string, Versions> workflows_;
};

}  // namespace troupe::cluster
