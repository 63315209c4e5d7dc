// A ClusterAdmin for tests: it keeps the changes that it was given and answers at once.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gateway/cluster_admin.hpp"

namespace troupe::gateway {

// The fake is thread-safe; every operation fails with `failure` when that is set.
class FakeClusterAdmin final : public ClusterAdmin {
 public:
  void FailWith(absl::Status failure);
  // What the answers to deployments and submissions say beside them.
  void RemarkWith(std::string message);
  // Deployments wait until they are given up.
  void HoldDeployments();
  // Blocks until so many deployments wait, or have been given up.
  void WaitForHeld(std::size_t count);
  void WaitForGivenUp(std::size_t count);
  Deployment last_deployment();
  std::string last_removed();
  proto::SplitFunction last_split();
  proto::UpdateFunction last_update();
  proto::Caller last_caller();  // the caller of the last change that was not a deployment

  AdminGiveUp Deploy(Deployment deployment, AdminDone<Remarked<proto::FunctionStatus>> done) override;
  AdminGiveUp AppendUpload(UploadPart part, AdminDone<proto::UploadReply> done) override;
  void ShowUpload(const std::string& digest, const std::string& client,
                  AdminDone<proto::UploadReply> done) override;
  void DropUpload(const std::string& digest, const std::string& client,
                  AdminDone<proto::UploadReply> done) override;
  void Remove(const proto::Caller& caller, std::string_view name, std::string_view version,
              std::function<void(absl::Status)> done) override;
  void ListFunctions(AdminDone<std::vector<proto::FunctionStatus>> done) override;
  void ShowFunction(std::string_view name, AdminDone<std::vector<proto::FunctionStatus>> done) override;
  void Split(const proto::Caller& caller, proto::SplitFunction wish,
             AdminDone<std::vector<proto::FunctionStatus>> done) override;
  void Update(const proto::Caller& caller, proto::UpdateFunction wish,
              AdminDone<std::vector<proto::FunctionStatus>> done) override;
  void ShowImports(std::string_view digest, AdminDone<std::vector<proto::ImportStatus>> done) override;
  void SubmitWorkflow(const proto::Caller& caller, std::string yaml,
                      AdminDone<Remarked<proto::WorkflowRecord>> done) override;
  void ListWorkflows(AdminDone<std::vector<proto::WorkflowRecord>> done) override;
  void RemoveWorkflow(const proto::Caller& caller, std::string_view name,
                      std::function<void(absl::Status)> done) override;
  void ListRuns(std::string_view workflow, AdminDone<std::vector<proto::RunRecord>> done) override;
  void ShowRun(std::string_view run, AdminDone<proto::RunRecord> done) override;
  void CancelRun(const proto::Caller& caller, std::string_view run,
                 std::function<void(absl::Status)> done) override;
  void Status(AdminDone<proto::ClusterStatusReply> done) override;

 private:
  absl::Status failure();
  std::string remark();
  void Note(const proto::Caller& caller);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool hold_ = false;
  std::size_t held_ = 0;
  std::size_t given_up_ = 0;
  absl::Status failure_;
  std::string remark_;
  Deployment last_;
  std::map<std::string, std::string> uploads_;  // what has come, by client and digest
  std::string removed_;
  proto::SplitFunction split_;
  proto::UpdateFunction update_;
  proto::Caller last_caller_;
};

}  // namespace troupe::gateway
