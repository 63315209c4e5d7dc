// DEPLOYMENTS: functions that developers deploy, remove, load and unload.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class Deployments {
 public:
  explicit Deployments(Parts& parts) : parts_(parts) {}

  // Imports first: nothing is stored of a file that cannot be served. Answered when the first node has
  // adopted it.
  void Deploy(Ask ask, const proto::DeployRequest& wish);
  // Without a version the newest is meant: which one that is, is settled when no other change is being stored,
  // so that none comes between. The answer has the one that was removed, and then those that stay.
  void Remove(Ask ask, const proto::RemoveRequest& wish);
  // Without a version all of them are meant, in one commit.
  void SetLoaded(Ask ask, const proto::LoadRequest& wish);
  void On(ModelImported& event);
  // Functions whose models' objects the store lacks. The others are served; a node that has the model goes on
  // with its copy. Gateways are told with the record.
  void On(const Started& event);

 private:
  [[nodiscard]] proto::FunctionRecord Complete(proto::FunctionRecord imported,
                                               const proto::DeployRequest& wish) const;
  void AwaitAdoption(Ask ask, const proto::FunctionRecord& record);
  void Adopted(Ask ask, const proto::FunctionRecord& record, const absl::Status& status);
  void Fail(Ask ask, const absl::Status& status);

  Parts& parts_;
  std::map<Ask, proto::DeployRequest> importing_;
};

}  // namespace troupe::cluster
