#include "actors/gateway/gateway_admin.hpp"

#include <atomic>
#include <memory>
#include <utility>

#include "node/runtimes/isolation.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kAskTimeout = std::chrono::seconds(10);
constexpr std::size_t kUploadChunk = 1u << 20;
constexpr Duration kDeployTimeout = std::chrono::minutes(10);

using Reply = absl::StatusOr<proto::AdminReply>;

std::function<void(const Reply&)> StatusOnly(std::function<void(absl::Status)> done) {
  return [done = std::move(done)](const Reply& reply) { done(reply.status()); };
}

std::function<void(const Reply&)> Functions(gateway::AdminDone<std::vector<proto::FunctionStatus>> done) {
  return [done = std::move(done)](const Reply& reply) {
    if (!reply.ok()) return done(reply.status());
    done(std::vector<proto::FunctionStatus>(reply->functions().begin(), reply->functions().end()));
  };
}

proto::UploadChunk ChunkOf(const std::string& digest, const std::string& client,
                           proto::UploadChunk::Wish wish) {
  proto::UploadChunk chunk;
  chunk.set_wish(wish);
  chunk.set_digest(digest);
  chunk.set_client(client);
  return chunk;
}

}  // namespace

namespace {

// What was deployed, as clients call it: a model in stages by the name of the workflow that calls these.
proto::FunctionStatus DeployedOf(const proto::AdminReply& reply) {
  auto status = reply.functions(0);
  if (reply.workflows().empty()) return status;
  const auto& workflow = reply.workflows(0);
  auto& record = *status.mutable_record();
  record.mutable_key()->set_name(workflow.spec().name());
  record.mutable_slo()->set_deadline_ns(record.stage().deadline_ns());
  record.clear_inputs();
  for (const auto& input : workflow.spec().inputs()) *record.add_inputs() = input.spec();
  *record.mutable_outputs() = workflow.outputs();
  std::uint64_t weights = 0;
  for (const auto& stage : reply.functions()) weights += stage.record().weights_bytes();
  record.set_weights_bytes(weights);
  return status;
}

}  // namespace

gateway::AdminGiveUp GatewayAdmin::Deploy(gateway::Deployment deployment,
                                          gateway::AdminDone<gateway::Remarked<proto::FunctionStatus>> done) {
  auto source = std::make_shared<const StringSource>(std::move(deployment.onnx));
  proto::AdminRequest request;
  *request.mutable_caller() = deployment.caller;
  auto& deploy = *request.mutable_deploy();
  deploy.set_name(deployment.name);
  deploy.set_client(deployment.client);
  deploy.set_version(deployment.version);
  deploy.set_tenant(deployment.tenant);
  if (!deployment.isolation.empty()) {
    const auto isolation = node::ParseIsolation(deployment.isolation);
    if (!isolation.ok()) {
      done(isolation.status());
      return [] {};
    }
    deploy.set_isolation(*isolation);
  }
  deploy.set_precision(deployment.precision);
  if (deployment.sharing.ByteSizeLong() > 0) *deploy.mutable_sharing() = deployment.sharing;
  deploy.set_run_limit_ns(deployment.run_limit.count());
  if (deployment.deadline > Duration::zero())
    deploy.mutable_slo()->set_deadline_ns(deployment.deadline.count());
  if (deployment.percentile > 0) deploy.mutable_slo()->set_percentile(deployment.percentile);
  for (auto& tensor : deployment.state) *deploy.add_state() = std::move(tensor);
  deploy.set_state_replicas(deployment.state_replicas);
  deploy.set_stage_memory(deployment.stage_memory.count());
  const auto ask = [this, done, request](const absl::StatusOr<std::string>& digest) mutable {
    if (!digest.ok()) return done(digest.status());
    request.mutable_deploy()->set_onnx_digest(*digest);
    manager_.Ask(std::move(request), kDeployTimeout, [done](const Reply& reply) {
      if (!reply.ok()) return done(reply.status());
      done(gateway::Remarked<proto::FunctionStatus>{DeployedOf(*reply), reply->message()});
    });
  };
  if (!deployment.digest.empty()) {
    auto deploys = ask;
    deploys(deployment.digest);
    return [] {};
  }
  return manager_.Upload(std::move(source), deployment.client, ManagerClient::kFindTimeout, ask);
}

// A part on its way to the manager, in messages of one chunk each.
struct GatewayAdmin::PartJob {
  gateway::UploadPart part;
  std::size_t sent = 0;
  gateway::AdminDone<proto::UploadReply> done;
  std::atomic<bool> given_up = false;
};

gateway::AdminGiveUp GatewayAdmin::AppendUpload(gateway::UploadPart part,
                                                gateway::AdminDone<proto::UploadReply> done) {
  auto job = std::make_shared<PartJob>();
  job->part = std::move(part);
  job->done = std::move(done);
  SendNext(job);
  return [weak = std::weak_ptr(job)] {
    if (const auto under_way = weak.lock()) under_way->given_up = true;
  };
}

void GatewayAdmin::SendNext(const std::shared_ptr<PartJob>& job) {
  auto chunk = ChunkOf(job->part.digest, job->part.client, proto::UploadChunk::APPEND);
  chunk.set_offset(job->part.offset + job->sent);
  chunk.set_data(job->part.bytes.substr(job->sent, kUploadChunk));
  job->sent += chunk.data().size();
  const bool ends = job->sent == job->part.bytes.size();
  chunk.set_last(job->part.complete && ends);
  manager_.Send(std::move(chunk), [this, job, ends](const absl::StatusOr<proto::UploadReply>& reply) {
    if (job->given_up) return job->done(absl::CancelledError("the client has gone"));
    if (!reply.ok() || reply->code() != 0 || ends) return job->done(reply);
    SendNext(job);
  });
}

void GatewayAdmin::ShowUpload(const std::string& digest, const std::string& client,
                              gateway::AdminDone<proto::UploadReply> done) {
  manager_.Send(ChunkOf(digest, client, proto::UploadChunk::ASK), std::move(done));
}

void GatewayAdmin::DropUpload(const std::string& digest, const std::string& client,
                              gateway::AdminDone<proto::UploadReply> done) {
  manager_.Send(ChunkOf(digest, client, proto::UploadChunk::DROP), std::move(done));
}

void GatewayAdmin::Remove(const proto::Caller& caller, std::string_view name, std::string_view version,
                          std::function<void(absl::Status)> done) {
  proto::AdminRequest request;
  *request.mutable_caller() = caller;
  request.mutable_remove()->mutable_key()->set_name(std::string(name));
  request.mutable_remove()->mutable_key()->set_version(std::string(version));
  manager_.Ask(std::move(request), kAskTimeout, StatusOnly(std::move(done)));
}

void GatewayAdmin::ListFunctions(gateway::AdminDone<std::vector<proto::FunctionStatus>> done) {
  proto::AdminRequest request;
  request.mutable_list_functions();
  manager_.Ask(std::move(request), kAskTimeout, Functions(std::move(done)));
}

void GatewayAdmin::ShowFunction(std::string_view name,
                                gateway::AdminDone<std::vector<proto::FunctionStatus>> done) {
  proto::AdminRequest request;
  request.mutable_show_function()->mutable_key()->set_name(std::string(name));
  manager_.Ask(std::move(request), kAskTimeout, Functions(std::move(done)));
}

void GatewayAdmin::Split(const proto::Caller& caller, proto::SplitFunction wish,
                         gateway::AdminDone<std::vector<proto::FunctionStatus>> done) {
  proto::AdminRequest request;
  *request.mutable_caller() = caller;
  *request.mutable_split_function() = std::move(wish);
  manager_.Ask(std::move(request), kAskTimeout, Functions(std::move(done)));
}

void GatewayAdmin::Update(const proto::Caller& caller, proto::UpdateFunction wish,
                          gateway::AdminDone<std::vector<proto::FunctionStatus>> done) {
  proto::AdminRequest request;
  *request.mutable_caller() = caller;
  *request.mutable_update_function() = std::move(wish);
  manager_.Ask(std::move(request), kAskTimeout, Functions(std::move(done)));
}

void GatewayAdmin::ShowImports(std::string_view digest,
                               gateway::AdminDone<std::vector<proto::ImportStatus>> done) {
  proto::AdminRequest request;
  request.mutable_show_import()->set_onnx_digest(std::string(digest));
  manager_.Ask(std::move(request), kAskTimeout, [done = std::move(done)](const Reply& reply) {
    if (!reply.ok()) return done(reply.status());
    done(std::vector<proto::ImportStatus>(reply->imports().begin(), reply->imports().end()));
  });
}

void GatewayAdmin::SubmitWorkflow(const proto::Caller& caller, std::string yaml,
                                  gateway::AdminDone<gateway::Remarked<proto::WorkflowRecord>> done) {
  proto::AdminRequest request;
  *request.mutable_caller() = caller;
  request.mutable_submit_workflow()->set_yaml(std::move(yaml));
  manager_.Ask(std::move(request), kAskTimeout, [done = std::move(done)](const Reply& reply) {
    if (!reply.ok()) return done(reply.status());
    done(gateway::Remarked<proto::WorkflowRecord>{reply->workflows(0), reply->message()});
  });
}

void GatewayAdmin::ListWorkflows(gateway::AdminDone<std::vector<proto::WorkflowRecord>> done) {
  proto::AdminRequest request;
  request.mutable_list_workflows();
  manager_.Ask(std::move(request), kAskTimeout, [done = std::move(done)](const Reply& reply) {
    if (!reply.ok()) return done(reply.status());
    done(std::vector<proto::WorkflowRecord>(reply->workflows().begin(), reply->workflows().end()));
  });
}

void GatewayAdmin::RemoveWorkflow(const proto::Caller& caller, std::string_view name,
                                  std::function<void(absl::Status)> done) {
  proto::AdminRequest request;
  *request.mutable_caller() = caller;
  request.mutable_remove_workflow()->set_name(std::string(name));
  manager_.Ask(std::move(request), kAskTimeout, StatusOnly(std::move(done)));
}

void GatewayAdmin::ListRuns(std::string_view workflow,
                            gateway::AdminDone<std::vector<proto::RunRecord>> done) {
  proto::AdminRequest request;
  request.mutable_list_runs()->set_workflow(std::string(workflow));
  manager_.Ask(std::move(request), kAskTimeout, [done = std::move(done)](const Reply& reply) {
    if (!reply.ok()) return done(reply.status());
    done(std::vector<proto::RunRecord>(reply->runs().begin(), reply->runs().end()));
  });
}

void GatewayAdmin::ShowRun(std::string_view run, gateway::AdminDone<proto::RunRecord> done) {
  proto::AdminRequest request;
  request.mutable_show_run()->set_run(std::string(run));
  manager_.Ask(std::move(request), kAskTimeout, [done = std::move(done)](const Reply& reply) {
    if (!reply.ok()) return done(reply.status());
    done(reply->runs(0));
  });
}

void GatewayAdmin::CancelRun(const proto::Caller& caller, std::string_view run,
                             std::function<void(absl::Status)> done) {
  proto::AdminRequest request;
  *request.mutable_caller() = caller;
  request.mutable_cancel_run()->set_run(std::string(run));
  manager_.Ask(std::move(request), kAskTimeout, StatusOnly(std::move(done)));
}

void GatewayAdmin::Status(gateway::AdminDone<proto::ClusterStatusReply> done) {
  proto::AdminRequest request;
  request.mutable_cluster_status();
  manager_.Ask(std::move(request), kAskTimeout, [done = std::move(done)](const Reply& reply) {
    if (!reply.ok()) return done(reply.status());
    done(reply->status());
  });
}

}  // namespace troupe::actors
