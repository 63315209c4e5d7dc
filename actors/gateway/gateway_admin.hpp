// GATEWAY ADMIN: the HTTP front's ClusterAdmin over the manager client. Thread-safe; outlives the HTTP
// server.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/client/manager_client.hpp"
#include "gateway/cluster_admin.hpp"

namespace troupe::actors {

class GatewayAdmin final : public gateway::ClusterAdmin {
 public:
  // `manager` outlives it.
  explicit GatewayAdmin(ManagerClient& manager) : manager_(manager) {}

  gateway::AdminGiveUp Deploy(gateway::Deployment deployment,
                              gateway::AdminDone<gateway::Remarked<proto::FunctionStatus>> done) override;
  gateway::AdminGiveUp AppendUpload(gateway::UploadPart part,
                                    gateway::AdminDone<proto::UploadReply> done) override;
  void ShowUpload(const std::string& digest, const std::string& client,
                  gateway::AdminDone<proto::UploadReply> done) override;
  void DropUpload(const std::string& digest, const std::string& client,
                  gateway::AdminDone<proto::UploadReply> done) override;
  void Remove(const proto::Caller& caller, std::string_view name, std::string_view version,
              std::function<void(absl::Status)> done) override;
  void ListFunctions(gateway::AdminDone<std::vector<proto::FunctionStatus>> done) override;
  void ShowFunction(std::string_view name,
                    gateway::AdminDone<std::vector<proto::FunctionStatus>> done) override;
  void Split(const proto::Caller& caller, proto::SplitFunction wish,
             gateway::AdminDone<std::vector<proto::FunctionStatus>> done) override;
  void Update(const proto::Caller& caller, proto::UpdateFunction wish,
              gateway::AdminDone<std::vector<proto::FunctionStatus>> done) override;
  void ShowImports(std::string_view digest,
                   gateway::AdminDone<std::vector<proto::ImportStatus>> done) override;
  void SubmitWorkflow(const proto::Caller& caller, std::string yaml,
                      gateway::AdminDone<gateway::Remarked<proto::WorkflowRecord>> done) override;
  void ListWorkflows(gateway::AdminDone<std::vector<proto::WorkflowRecord>> done) override;
  void RemoveWorkflow(const proto::Caller& caller, std::string_view name,
                      std::function<void(absl::Status)> done) override;
  void ListRuns(std::string_view workflow, gateway::AdminDone<std::vector<proto::RunRecord>> done) override;
  void ShowRun(std::string_view run, gateway::AdminDone<proto::RunRecord> done) override;
  void CancelRun(const proto::Caller& caller, std::string_view run,
                 std::function<void(absl::Status)> done) override;
  void Status(gateway::AdminDone<proto::ClusterStatusReply> done) override;

 private:
  struct PartJob;
  void SendNext(const std::shared_ptr<PartJob>& job);

  ManagerClient& manager_;
};

}  // namespace troupe::actors
