// STAGED MODELS: a model that no GPU of the cluster could hold is deployed in stages: functions "NAME.1" to "NAME.n", each a
// part of the model (gpu/import/stages.hpp), and a workflow NAME that calls one after the other. Clients call NAME as they call a
// function. Stages are bound, owned and replicated as other functions are, so two GPUs that hold one stage each are a pipeline,
// and one GPU has them in turn. All functions and the workflow of a version come and go in one commit.
//
//   file --imported stage by stage--> deployed --each stage adopted by a node--> answered
//                                     deployed --no node can serve a stage--> taken back
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/copies/copies.hpp"
#include "cluster/events.hpp"
#include "cluster/records/catalogue.hpp"
#include "cluster/records/mutation.hpp"
#include "proto/stage_wish.hpp"

namespace troupe::cluster {

struct Parts;

// The name of a stage, counted from 1.
[[nodiscard]] std::string StageName(const std::string& model, std::uint32_t number);
// The functions of a model that is deployed in stages, in their order; none: no such model is.
[[nodiscard]] std::vector<proto::FunctionKey> StagesOf(const WorkflowRegistry& workflows,
                                                       const proto::FunctionKey& model);
// Why what is asked of one function is not done: NotFound, or FailedPrecondition, which names the stages of a model in stages.
[[nodiscard]] absl::Status NotOneFunction(const Catalogue& catalogue, const proto::FunctionKey& key);
// The commands that remove this version of a workflow and, if a model in stages is behind it, the functions of the stages.
[[nodiscard]] std::vector<CatalogueCommand> RemovalOf(const proto::WorkflowRecord& workflow,
                                                      const Catalogue& catalogue, std::int64_t unix_now);

class StagedModels {
 public:
  explicit StagedModels(Parts& parts) : parts_(parts) {}

  // What is asked of the import of a file.
  [[nodiscard]] proto::StageBounds BoundsFor(const proto::DeployRequest& wish) const;
  // The first stage of a file was imported with these bounds: the others are.
  void Begin(Ask ask, const proto::DeployRequest& wish, const proto::StageBounds& bounds,
             proto::FunctionRecord first);
  // Whether this was the import of a further stage.
  [[nodiscard]] bool Imported(ModelImported& event);
  // A node has adopted the model of this stage, or could not.
  void Adopted(const Deployed& deployed, const absl::Status& status);

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(DeployingStages& change) const;
  void Answer(DeployingStages& change, const absl::Status& status);

 private:
  struct Importing {
    proto::DeployRequest wish{};
    proto::StageBounds bounds{};
    std::vector<proto::FunctionRecord> records{};
  };
  void ImportNext(Ask ask, const Importing& importing);
  void Deploy(Ask ask, Importing importing);

  Parts& parts_;
  std::map<Ask, Importing> importing_;
  std::map<Ask, DeployingStages> deployed_;  // stored, and not answered yet
};

}  // namespace troupe::cluster
