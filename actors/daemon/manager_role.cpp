#include <spdlog/spdlog.h>
#include <unistd.h>

#include <caf/scoped_actor.hpp>
#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "actors/daemon/gauges.hpp"
#include "actors/daemon/process_faults.hpp"
#include "actors/daemon/roles.hpp"
#include "actors/daemon/vital.hpp"
#include "actors/manager/cluster_manager.hpp"
#include "actors/peers/local_socket.hpp"
#include "actors/seams/command_provisioner.hpp"
#include "actors/seams/stored_model_repository.hpp"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "cluster/admin/answers.hpp"
#include "cluster/copies/fetch_policy.hpp"
#include "cluster/copies/replica_policy.hpp"
#include "storage/backup.hpp"
#include "storage/durable_file.hpp"
#include "storage/function_objects.hpp"
#include "storage/rocks_metadata_store.hpp"

namespace troupe::actors {

namespace {

// RocksDB writes while it recovers, and ends the process where it cannot.
constexpr Bytes kRoomToStart = MiB(8);

absl::Status CheckRoom(const std::string& data) {
  std::error_code error;
  const auto space = std::filesystem::space(data, error);
  if (error || space.available >= static_cast<std::uintmax_t>(kRoomToStart.count())) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the disk of the data directory '", data, "' is full (", FormatBytes(Bytes(space.available)),
      " left): make room for ", FormatBytes(kRoomToStart), " at least"));
}

// The daemon starts all the same: what was deployed before is served.
void TellOfJail(const std::string& import_program, gpu::ImportSandbox sandbox) {
  const auto lacking = gpu::ProbeJail(import_program);
  if (!lacking.ok()) {
    spdlog::warn("imports have no jail (--import-sandbox {}): {}", NameIn(gpu::kImportSandboxes, sandbox),
                 std::string(lacking.status().message()));
  } else if (lacking->empty()) {
    spdlog::info("imports run in a jail");
  } else {
    spdlog::info("imports run in a jail; this machine lacks its second wall: {}", *lacking);
  }
}

class ManagerRole final : public Role {
 public:
  ManagerRole(Common& common, std::unique_ptr<storage::RocksMetadataStore> store,
              std::chrono::steady_clock::time_point begin)
      : common_(common), begin_(begin), store_(std::move(store)), gauges_(common.registry) {}
  ~ManagerRole() override {
    if (!manager_) return;
    caf::anon_send_exit(manager_, caf::exit_reason::user_shutdown);
    // It asks the store, the repository and the provisioner until then.
    caf::scoped_actor self(*common_.system);
    self->wait_for(caf::actor_cast<caf::actor>(manager_));
    manager_ = ClusterManagerActor();
  }

  absl::Status Start() {
    const auto& config = common_.config;
    StoredModelRepository::Options repository;
    repository.import_program = config.member.bin + "/troupe-import";
    repository.work_directory = config.member.data + "/import";
    repository.import.memory = config.imports.memory;
    repository.import.time = config.imports.time;
    repository.import.pack = true;
    repository.import.sandbox = config.imports.sandbox;
    TellOfJail(repository.import_program, config.imports.sandbox);
    repository.import_queue.jobs = config.imports.jobs;
    repository_ = std::make_unique<StoredModelRepository>(std::move(repository), *common_.objects, nullptr,
                                                          *common_.channel);
    ManagerOptions options;
    options.membership = config.membership;
    options.member_lease = config.member_lease;
    if (!config.machines.command.empty())
      provisioner_ = std::make_unique<CommandProvisioner>(config.machines.command);
    options.provisioner = provisioner_.get();
    options.provisioning = config.machines.limits;
    options.replicas = config.functions.replicas;
    TROUPE_ASSIGN_OR_RETURN(options.replica_policy,
                            cluster::FindReplicaPolicy(config.policies.chosen.replicas));
    TROUPE_ASSIGN_OR_RETURN(options.fetch_policy, cluster::FindFetchPolicy(config.policies.chosen.fetching));
    options.scaling = {.policy = config.policies.chosen.scaling,
                       .forecast = config.policies.chosen.forecast,
                       .owning = config.policies.chosen.owning,
                       .effect = config.functions.scaling_effect};
    options.audit = common_.audit.get();
    options.lacking = [objects = std::make_shared<storage::StoredObjects>(*common_.objects)](
                          const proto::FunctionRecord& function) { return objects->LackingFor(function); };
    options.default_slo.set_deadline_ns(config.functions.default_deadline.count());
    options.new_cluster_id = Sha256Hex(absl::StrCat(common_.incarnation, config.member.name)).substr(0, 16);
    options.unix_now = UnixNow;
    options.identities = common_.directory->identities();
    options.on_recovered = [this](const Recovered& found) {
      spdlog::info("recovered in {}: {} functions, {} workflows, {} runs ({} unfinished); {}",
                   FormatDuration(std::chrono::steady_clock::now() - begin_), found.functions,
                   found.workflows, found.runs, found.unfinished_runs, store_->recovery().Line());
    };
    options.on_event = [](const proto::Event& event) {
      spdlog::log(LogLevelOf(event.kind()), "{} {}: {}", event.member(), event.kind(), event.message());
    };
    TROUPE_ASSIGN_OR_RETURN(manager_,
                            SpawnClusterManager(*common_.system, std::move(options), *store_, *repository_));
    EndProcessWith(manager_, "the cluster manager");
    AllowFaultsIn(common_, manager_);
    TROUPE_ASSIGN_OR_RETURN(address_, common_.Publish(manager_, config.member.manager));
    common_.manager = address_;
    return absl::OkStatus();
  }

  [[nodiscard]] std::string Describe() const override { return absl::StrCat("manager at ", address_); }
  [[nodiscard]] absl::Status Health() override { return absl::OkStatus(); }

  void Measure() override {
    const auto imports = repository_->import_counts();
    gauges_.Set("troupe_imports_waiting", "Uploaded files that wait for their import.", {},
                static_cast<double>(imports.waiting));
    gauges_.Set("troupe_imports_running", "Imports that run.", {}, static_cast<double>(imports.running));
    gauges_.Set("troupe_imports_refused_total", "Imports that the full queue refused or dropped.", {},
                static_cast<double>(imports.refused));
    gauges_.Set("troupe_manager_model_bytes_sent_total", "Bytes of models that the manager sent to nodes.",
                {}, static_cast<double>(repository_->sent()));
    caf::scoped_actor self(*common_.system);
    proto::AdminRequest request;
    request.mutable_cluster_status();
    self->request(manager_, kAskTimeout, std::move(request))
        .receive([this](const proto::AdminReply& reply) { Show(reply.status()); }, [](const caf::error&) {});
  }

  void BackUp() override {
    const std::string& data = common_.config.member.data;
    const auto to = absl::StrCat(data, "/backups/", UnixNow() / 1'000'000'000);
    auto status = storage::MakeDirectories(data + "/backups");
    if (status.ok()) {
      const auto report = storage::MakeBackup(*store_, data, to);
      if (report.ok()) return spdlog::info("{}", report->Line(to));
      status = report.status();
    }
    spdlog::error("no backup was made: {}", std::string(status.message()));
  }

  void Stop(Duration) override {}

 private:
  void Show(const proto::ClusterStatusReply& status) {
    gauges_.Set("troupe_functions", "Functions in the registry.", {},
                static_cast<double>(status.functions()));
    gauges_.Set("troupe_models_short_of_copies", "Models with fewer host copies than wanted.", {},
                static_cast<double>(status.models_short()));
    gauges_.Set("troupe_states_short_of_copies",
                "Models whose states have fewer copies in step than their functions ask for.", {},
                static_cast<double>(status.states_short()));
    gauges_.Set("troupe_states_unreachable", "Models whose states are on a node that is gone or drains.", {},
                static_cast<double>(status.states_unreachable()));
    gauges_.Set("troupe_workflows", "Workflows in the registry.", {},
                static_cast<double>(status.workflows()));
    gauges_.Set("troupe_steps_recomputed_total",
                "Steps of workflow runs that were run again because their committed result was lost.", {},
                static_cast<double>(status.steps_recomputed()));
    gauges_.Clear("troupe_members");
    std::map<std::pair<std::string, std::string>, int> count;
    for (const auto& entry : status.members())
      ++count[{entry.member().kind() == proto::MEMBER_NODE ? "node" : "gateway",
               cluster::StateName(entry.member().state())}];
    for (const auto& [key, members] : count)
      gauges_.Set("troupe_members", "Members by kind and state.",
                  {{"kind", key.first}, {"state", key.second}}, members);
  }

  Common& common_;
  const std::chrono::steady_clock::time_point begin_;  // of its start
  std::unique_ptr<storage::RocksMetadataStore> store_;
  std::unique_ptr<StoredModelRepository> repository_;
  std::unique_ptr<NodeProvisioner> provisioner_;  // null: none
  ClusterManagerActor manager_;
  std::string address_;
  Gauges gauges_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Role>> StartManagerRole(Common& common) {
  const auto begin = std::chrono::steady_clock::now();
  TROUPE_RETURN_IF_ERROR(CheckRoom(common.config.member.data));
  TROUPE_ASSIGN_OR_RETURN(auto store,
                          storage::RocksMetadataStore::Open(common.config.member.data + "/metadata"));
  auto role = std::make_unique<ManagerRole>(common, std::move(store), begin);
  TROUPE_RETURN_IF_ERROR(role->Start());
  return role;
}

}  // namespace troupe::actors
