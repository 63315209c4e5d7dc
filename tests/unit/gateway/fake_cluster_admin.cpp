#include "tests/unit/gateway/fake_cluster_admin.hpp"

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/wire_status.hpp"

#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

proto::FunctionStatus StatusOf(std::string_view name) {
  proto::FunctionStatus status;
  status.mutable_record()->mutable_key()->set_name(std::string(name));
  status.mutable_record()->mutable_key()->set_version("1");
  status.add_resident_on("node-1/0");
  return status;
}

}  // namespace

void FakeClusterAdmin::FailWith(absl::Status failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
}
void FakeClusterAdmin::RemarkWith(std::string message) {
  const std::lock_guard lock(mutex_);
  remark_ = std::move(message);
}
std::string FakeClusterAdmin::remark() {
  const std::lock_guard lock(mutex_);
  return remark_;
}
void FakeClusterAdmin::HoldDeployments() {
  const std::lock_guard lock(mutex_);
  hold_ = true;
}
void FakeClusterAdmin::WaitForHeld(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return held_ >= count; });
}
void FakeClusterAdmin::WaitForGivenUp(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return given_up_ >= count; });
}
Deployment FakeClusterAdmin::last_deployment() {
  const std::lock_guard lock(mutex_);
  return last_;
}
std::string FakeClusterAdmin::last_removed() {
  const std::lock_guard lock(mutex_);
  return removed_;
}
proto::SplitFunction FakeClusterAdmin::last_split() {
  const std::lock_guard lock(mutex_);
  return split_;
}
proto::UpdateFunction FakeClusterAdmin::last_update() {
  const std::lock_guard lock(mutex_);
  return update_;
}
void FakeClusterAdmin::Note(const proto::Caller& caller) {
  const std::lock_guard lock(mutex_);
  last_caller_ = caller;
}

proto::Caller FakeClusterAdmin::last_caller() {
  const std::lock_guard lock(mutex_);
  return last_caller_;
}

absl::Status FakeClusterAdmin::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

AdminGiveUp FakeClusterAdmin::Deploy(Deployment deployment, AdminDone<Remarked<proto::FunctionStatus>> done) {
  const std::string name = deployment.name;
  {
    const std::lock_guard lock(mutex_);
    last_ = std::move(deployment);
    if (hold_) {
      ++held_;
      changed_.notify_all();
      return [this, done = std::move(done)] {
        done(absl::CancelledError("given up"));
        const std::lock_guard again(mutex_);
        ++given_up_;
        changed_.notify_all();
      };
    }
  }
  const absl::Status status = failure();
  if (!status.ok()) {
    done(status);
  } else {
    done(Remarked<proto::FunctionStatus>{StatusOf(name), remark()});
  }
  return [] {};
}

// As the manager does it, in the same words where clients see them.
AdminGiveUp FakeClusterAdmin::AppendUpload(UploadPart part, AdminDone<proto::UploadReply> done) {
  proto::UploadReply reply;
  {
    const std::lock_guard lock(mutex_);
    std::string& bytes = uploads_[part.client + " " + part.digest];
    if (part.offset != bytes.size()) {
      SetStatus(absl::OutOfRangeError(absl::StrCat("the upload is at byte ", bytes.size())), reply);
    } else {
      bytes += part.bytes;
      reply.set_complete(part.complete);
      if (part.complete && Sha256Hex(bytes) != part.digest)
        SetStatus(absl::DataLossError("the upload is dropped"), reply);
    }
    reply.set_received(bytes.size());
  }
  done(std::move(reply));
  return [] {};
}

void FakeClusterAdmin::ShowUpload(const std::string& digest, const std::string& client,
                                  AdminDone<proto::UploadReply> done) {
  proto::UploadReply reply;
  {
    const std::lock_guard lock(mutex_);
    const auto found = uploads_.find(client + " " + digest);
    if (found == uploads_.end()) SetStatus(absl::NotFoundError("nothing has come of it"), reply);
    if (found != uploads_.end()) {
      reply.set_received(found->second.size());
      reply.set_complete(Sha256Hex(found->second) == digest);
    }
  }
  done(std::move(reply));
}

void FakeClusterAdmin::DropUpload(const std::string& digest, const std::string& client,
                                  AdminDone<proto::UploadReply> done) {
  {
    const std::lock_guard lock(mutex_);
    uploads_.erase(client + " " + digest);
  }
  done(proto::UploadReply());
}

void FakeClusterAdmin::Remove(const proto::Caller& caller, std::string_view name, std::string_view version,
                              std::function<void(absl::Status)> done) {
  {
    const std::lock_guard lock(mutex_);
    last_caller_ = caller;
    removed_ = Cat(name, ":", version);
  }
  done(failure());
}

void FakeClusterAdmin::ListFunctions(AdminDone<std::vector<proto::FunctionStatus>> done) {
  if (absl::Status status = failure(); !status.ok()) return done(status);
  done(std::vector<proto::FunctionStatus>{StatusOf("a"), StatusOf("b")});
}

void FakeClusterAdmin::ShowFunction(std::string_view name,
                                    AdminDone<std::vector<proto::FunctionStatus>> done) {
  if (absl::Status status = failure(); !status.ok()) return done(status);
  done(std::vector<proto::FunctionStatus>{StatusOf(name)});
}

void FakeClusterAdmin::Split(const proto::Caller& caller, proto::SplitFunction wish,
                             AdminDone<std::vector<proto::FunctionStatus>> done) {
  Note(caller);
  const auto name = wish.name();
  {
    const std::lock_guard lock(mutex_);
    split_ = std::move(wish);
  }
  ShowFunction(name, std::move(done));
}

void FakeClusterAdmin::Update(const proto::Caller& caller, proto::UpdateFunction wish,
                              AdminDone<std::vector<proto::FunctionStatus>> done) {
  Note(caller);
  const auto name = wish.key().name();
  {
    const std::lock_guard lock(mutex_);
    update_ = std::move(wish);
  }
  ShowFunction(name, std::move(done));
}

void FakeClusterAdmin::ShowImports(std::string_view digest,
                                   AdminDone<std::vector<proto::ImportStatus>> done) {
  if (const auto failed = failure(); !failed.ok()) return done(failed);
  proto::ImportStatus status;
  status.set_onnx_digest(digest.empty() ? "any" : std::string(digest));
  status.set_stage("waiting");
  status.set_ahead(3);
  done(std::vector{status});
}

void FakeClusterAdmin::SubmitWorkflow(const proto::Caller& caller, std::string yaml,
                                      AdminDone<Remarked<proto::WorkflowRecord>> done) {
  Note(caller);
  if (absl::Status status = failure(); !status.ok()) return done(status);
  proto::WorkflowRecord record;
  record.mutable_spec()->set_name(yaml);
  done(Remarked<proto::WorkflowRecord>{record, remark()});
}

void FakeClusterAdmin::ListWorkflows(AdminDone<std::vector<proto::WorkflowRecord>> done) {
  done(std::vector<proto::WorkflowRecord>());
}

void FakeClusterAdmin::RemoveWorkflow(const proto::Caller& caller, std::string_view name,
                                      std::function<void(absl::Status)> done) {
  Remove(caller, name, "workflow", std::move(done));
}

void FakeClusterAdmin::ListRuns(std::string_view workflow, AdminDone<std::vector<proto::RunRecord>> done) {
  if (absl::Status status = failure(); !status.ok()) return done(status);
  proto::RunRecord run;
  run.mutable_start()->set_run("run-1");
  run.mutable_start()->set_workflow(workflow.empty() ? "any" : std::string(workflow));
  run.set_state(proto::RUN_SUCCEEDED);
  done(std::vector<proto::RunRecord>{run});
}

void FakeClusterAdmin::ShowRun(std::string_view run, AdminDone<proto::RunRecord> done) {
  if (absl::Status status = failure(); !status.ok()) return done(status);
  proto::RunRecord record;
  record.mutable_start()->set_run(std::string(run));
  done(record);
}

void FakeClusterAdmin::CancelRun(const proto::Caller& caller, std::string_view run,
                                 std::function<void(absl::Status)> done) {
  Remove(caller, run, "run", std::move(done));
}

void FakeClusterAdmin::Status(AdminDone<proto::ClusterStatusReply> done) {
  if (absl::Status status = failure(); !status.ok()) return done(status);
  proto::ClusterStatusReply reply;
  reply.set_cluster("test");
  reply.set_functions(2);
  done(reply);
}

}  // namespace troupe::gateway
