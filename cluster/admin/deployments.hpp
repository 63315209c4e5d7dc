// DEPLOYMENTS: functions that developers deploy, remove, load and unload.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "cluster/copies/copies.hpp"
#include "cluster/events.hpp"
#include "cluster/records/mutation.hpp"
#include "proto/stage_wish.hpp"

namespace troupe::cluster {

struct Parts;

class Deployments {
 public:
  explicit Deployments(Parts& parts) : parts_(parts) {}

  // Imports first: nothing is stored of a file that cannot be served. Answered when the first node has
  // adopted it.
  void Deploy(Ask ask, const proto::DeployRequest& wish);
  // A wish without a version means the newest version. Which version is the newest is decided when no other
  // change is being stored, so that no change comes between. The answer has the version that was removed, and
  // then the versions that stay.
  void Remove(Ask ask, const proto::RemoveRequest& wish);
  // Without a version all of them are meant, in one commit.
  void SetLoaded(Ask ask, const proto::LoadRequest& wish);
  void On(ModelImported& event);
  // A node has adopted the model of this deployment, or could not (copies/copies.hpp).
  void Adopted(const Deployed& deployed, const absl::Status& status);
  // What adopting a model came to does not keep it from being served later.
  [[nodiscard]] static bool IsPassing(const absl::Status& status);
  // The record of what was imported, with what the developer said of it.
  [[nodiscard]] proto::FunctionRecord Complete(proto::FunctionRecord imported,
                                               const proto::DeployRequest& wish) const;

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(Deploying& change) const;
  absl::Status Validate(const TakingBack& change) const;
  absl::Status Validate(Removing& change) const;
  absl::Status Validate(Loading& change) const;
  void Answer(Deploying& change, const absl::Status& status);
  void Answer(const TakingBack& change, const absl::Status& status);
  void Answer(Removing& change, const absl::Status& status);
  void Answer(const Loading& change, const absl::Status& status);

  // Functions whose models' objects the store lacks. The others are served; a node that has the model goes on
  // with its copy. Gateways are told with the record.
  void On(const Started& event);

 private:
  void Fail(Ask ask, const absl::Status& status);
  // FailedPrecondition for the name of a model's stage.
  [[nodiscard]] absl::Status CheckNoStage(const std::string& name) const;
  // FailedPrecondition for the name of a workflow.
  [[nodiscard]] absl::Status CheckNoWorkflow(const std::string& name) const;

  Parts& parts_;
  struct Importing {
    proto::DeployRequest wish{};
    proto::StageBounds bounds{};  // that were asked for: GPUs may come and go meanwhile
  };
  std::map<Ask, Importing> importing_;
};

}  // namespace troupe::cluster
