#include <spdlog/spdlog.h>

#include <algorithm>
#include <caf/scoped_actor.hpp>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "actors/core/time.hpp"
#include "actors/daemon/gauges.hpp"
#include "actors/daemon/membership.hpp"
#include "actors/daemon/process_faults.hpp"
#include "actors/daemon/roles.hpp"
#include "actors/daemon/slo_file.hpp"
#include "actors/daemon/slo_gauges.hpp"
#include "actors/daemon/vital.hpp"
#include "actors/gateway/gateway_admin.hpp"
#include "actors/gateway/gateway_service.hpp"
#include "actors/gateway/router.hpp"
#include "actors/gateway/slo_recorder.hpp"
#include "actors/peers/local_socket.hpp"
#include "base/status.hpp"
#include "gateway/gateway_server.hpp"

namespace troupe::actors {

namespace {

void ShowBatches(const std::map<std::uint32_t, std::uint64_t>& runs, Gauges& gauges) {
  const std::vector<double> bounds = {1, 2, 4, 8, 16, 32};
  std::vector<double> counts(bounds.size() + 1);
  double requests = 0;
  for (const auto& [size, count] : runs) {
    const auto bucket = std::ranges::lower_bound(bounds, static_cast<double>(size)) - bounds.begin();
    counts[static_cast<std::size_t>(bucket)] += static_cast<double>(count);
    requests += static_cast<double>(size) * static_cast<double>(count);
  }
  gauges.SetHistogram("troupe_gateway_batch_size", "Requests that one run answered.", {}, bounds, counts,
                      requests);
}

class GatewayRole final : public Role {
 public:
  explicit GatewayRole(Common& common) : common_(common), gauges_(common.registry) {}
  ~GatewayRole() override {
    server_.reset();
    caf::anon_send_exit(member_, caf::exit_reason::user_shutdown);
    front_.reset();
    caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
    // Threads and actors that might still call back into what follows are gone after this.
    caf::scoped_actor self(*common_.system);
    self->wait_for(caf::actor_cast<caf::actor>(router_));
    manager_.reset();
    member_ = MemberActor();
    router_ = RouterActor();
  }

  absl::Status Start(const std::string& operations) {
    const auto& config = common_.config;
    slo_file_.Load(ClockNow());
    MemberOptions member;
    TROUPE_RETURN_IF_ERROR(TieToCluster(common_, false, member));
    RouterOptions router;
    router.gateway = config.member.name;
    router.lease = member.lease;
    router.id = common_.incarnation;
    router.policies = config.policies.chosen;
    router.limits.max_requests = config.functions.queue;
    router.limits.default_timeout = config.functions.default_timeout;
    router.view = view_;
    router.servable = servable_;
    const auto inbox = router.inbox;
    router.on_answer = [statistics = statistics_, slos = slos_](cluster::EndedRequest ended, Time now) {
      ended.unix_ns = UnixNow();
      statistics->Observe(ended.reply, ended.took, ended.unix_ns / 1'000'000);
      slos->Observe(ended, now);
    };
    TROUPE_ASSIGN_OR_RETURN(router_, SpawnRouter(*common_.system, std::move(router), *common_.directory));
    FrontOptions front;
    front.gateway = config.member.name;
    front.manager = common_.manager;
    front.incarnation = common_.incarnation;
    front.view = view_;
    front.on_run = [statistics = statistics_](const proto::FunctionKey& workflow, int code, Duration took) {
      statistics->ObserveRun(workflow, code, took, UnixNow() / 1'000'000);
    };
    front.describe = [slos = slos_](const proto::DescribeGateway& ask, Time now) {
      return slos->Describe(ask, now);
    };
    front.router_inbox = inbox;
    front_ =
        MakeFrontClient(*common_.system, std::move(front), router_, *common_.directory, *common_.channel);
    manager_ = std::make_unique<ManagerClient>(*common_.system, *common_.directory, common_.manager);
    service_ = std::make_unique<GatewayService>(
        GatewayService::Parts{front_, view_, servable_, statistics_, manager_.get(), common_.channel.get()});
    admin_ = std::make_unique<GatewayAdmin>(*manager_);
    TROUPE_RETURN_IF_ERROR(Serve());
    // Where shells find the front. A node in the same process has the configured port.
    const auto listen = config.member.roles.Has(security::Role::kNode)
                            ? config.member.listen.substr(0, config.member.listen.rfind(':')) + ":0"
                            : config.member.listen;
    TROUPE_ASSIGN_OR_RETURN(address_, common_.Publish(front_->actor(), listen));
    auto& record = member.record;
    // In one process the node has the plain name.
    record.set_name(config.member.roles.Has(security::Role::kNode) ? config.member.name + "-gateway"
                                                                   : config.member.name);
    record.set_kind(proto::MEMBER_GATEWAY);
    record.set_address(address_);
    record.set_operations(operations);
    record.set_http(http_);
    record.set_host(config.member.host_id);
    member_ =
        SpawnGatewayMember(*common_.system, std::move(member), router_, front_->actor(), *common_.directory);
    EndProcessWith(router_, "the router");
    EndProcessWith(front_->actor(), "the gateway's front");
    EndProcessWith(member_, "the gateway's member");
    AllowFaultsIn(common_, member_);
    return absl::OkStatus();
  }

  [[nodiscard]] std::string Describe() const override {
    return absl::StrCat("gateway at ", common_.https == nullptr ? "http://" : "https://", http_);
  }

  [[nodiscard]] absl::Status Health() override {
    return view_->nodes() > 0 ? absl::OkStatus() : absl::UnavailableError("no node takes requests");
  }

  [[nodiscard]] bool Serves() override { return service_->Ready(); }

  void Reload() override { RenewCertificate(true); }

  void Measure() override {
    RenewCertificate(false);
    const auto totals = statistics_->totals();
    const Gauges::Labels none;
    gauges_.Set("troupe_router_nodes", "Nodes that grant credits.", none,
                static_cast<double>(view_->nodes()));
    gauges_.Set("troupe_router_served_total", "Requests answered well.", none,
                static_cast<double>(totals.served));
    gauges_.Set("troupe_router_failed_total", "Requests answered with an error.", none,
                static_cast<double>(totals.failed));
    gauges_.Set("troupe_router_hits_total", "Requests whose model was resident.", none,
                static_cast<double>(totals.hits));
    gauges_.Set("troupe_swap_seconds_total", "Time that requests spent on swapping in.", none,
                ToSeconds(totals.swap));
    gauges_.Set("troupe_compute_seconds_total", "Time that requests spent computing.", none,
                ToSeconds(totals.compute));
    ShowBatches(totals.batches, gauges_);
    caf::scoped_actor self(*common_.system);
    ShowSlos(slos_->Describe({}, Now(self.ptr())), gauges_);
    slo_file_.Save(Now(self.ptr()));
    self->request(router_, kAskTimeout, proto::DescribeMember())
        .receive(
            [&](const proto::MemberReport& report) {
              gauges_.Set("troupe_router_queue", "Requests that no node has taken yet.", none,
                          static_cast<double>(report.load().queued()));
              gauges_.Set("troupe_router_in_flight", "Requests at nodes.", none,
                          static_cast<double>(report.load().running()));
            },
            [](const caf::error&) {});
  }

  void Stop(Duration grace) override {
    server_->Stop(grace);
    slo_file_.Save(ClockNow(), true);
    caf::scoped_actor self(*common_.system);
    self->send(member_, proto::LeaveRequest());
    self->wait_for(caf::actor_cast<caf::actor>(member_));
  }

 private:
  // The actors' clock.
  [[nodiscard]] Time ClockNow() const {
    caf::scoped_actor self(*common_.system);
    return Now(self.ptr());
  }

  absl::Status Serve() {
    const auto& config = common_.config;
    gateway::GatewayOptions options;
    const auto colon = config.http.address.rfind(':');
    options.http.address = HostOf(config.http.address);
    options.http.port = static_cast<std::uint16_t>(std::stoi(config.http.address.substr(colon + 1)));
    options.http.threads = config.http.threads;
    options.access.keys = view_->keys();
    options.access.any_client_without_keys = config.security.insecure_network;
    options.http.max_connections = config.http.connections;
    options.http.certificate = common_.https;
    options.cors_origins = config.http.cors_origins;
    const auto offer = config.http.shared_memory;
    if (offer == SharedMemoryOffer::kOn ||
        (offer == SharedMemoryOffer::kLoopback && IsLoopback(HostOf(config.http.address)))) {
      // Clients that send their tensors keep a quarter of the arena at least.
      options.shared_memory.emplace().inputs = Bytes(config.tensors.arena.count() / 4 * 3);
    }
    TROUPE_ASSIGN_OR_RETURN(
        server_, gateway::GatewayServer::Start(options, *service_, admin_.get(), common_.registry));
    http_ = absl::StrCat(config.http.address.substr(0, colon), ":", server_->port());
    WarnOfOpenFront();
    WarnOfCertificate();
    return absl::OkStatus();
  }

  // Looks at the files' stamps each second, so that a certificate which a program renews needs no signal.
  void RenewCertificate(bool forced) {
    if (common_.https == nullptr) return;
    const auto changed = common_.https->Reload(forced);
    if (!changed.ok()) {
      spdlog::error("{}", std::string(changed.status().message()));
    } else if (*changed) {
      spdlog::info("new connections see the HTTPS certificate {}", common_.https->Current()->description);
      warned_.clear();
    }
    WarnOfCertificate();
  }

  // Each state of the certificate once.
  void WarnOfCertificate() {
    if (common_.https == nullptr) return;
    const auto certificate = common_.https->Current();
    gauges_.Set("troupe_https_certificate_ends_seconds", "Unix time at which the HTTPS certificate ends.", {},
                static_cast<double>(absl::ToUnixSeconds(certificate->not_after)));
    auto warning = security::ValidityWarning(*certificate, absl::Now());
    if (warning == warned_) return;
    if (!warning.empty()) spdlog::warn("{}", warning);
    warned_ = std::move(warning);
  }

  // Once, loud: what clients on other machines may do, and how they come in.
  void WarnOfOpenFront() const {
    const auto& config = common_.config;
    const auto host = HostOf(config.http.address);
    if (host.starts_with("127.") || host == "::1") return;
    if (common_.https == nullptr)
      spdlog::warn(
          "API keys and tensors travel in the clear to {}: give the gateway --http-tls-certificate and "
          "--http-tls-key, or let a proxy on this machine speak TLS",
          http_);
    if (config.security.insecure_network) {
      spdlog::warn(
          "--insecure-network: as long as the cluster has no API key, every client that reaches {} may do "
          "everything; "
          "make one with: troupe key create NAME --scope infer,deploy,read",
          http_);
    } else {
      spdlog::warn(
          "clients on other machines are refused at {} until the cluster has an API key; make one with: "
          "troupe key "
          "create NAME --scope infer,deploy,read",
          http_);
    }
  }

  Common& common_;
  std::shared_ptr<ServableModels> servable_ = std::make_shared<ServableModels>();
  std::shared_ptr<ViewCell> view_ = std::make_shared<ViewCell>();
  std::shared_ptr<FunctionStatistics> statistics_ = std::make_shared<FunctionStatistics>();
  std::shared_ptr<SloRecorder> slos_ = std::make_shared<SloRecorder>(common_.config.member.name);
  SloFile slo_file_{common_.config.member.data, slos_};
  RouterActor router_;
  std::shared_ptr<FrontClient> front_;
  std::unique_ptr<ManagerClient> manager_;
  std::unique_ptr<GatewayService> service_;
  std::unique_ptr<GatewayAdmin> admin_;
  std::unique_ptr<gateway::GatewayServer> server_;
  MemberActor member_;
  std::string address_;
  std::string http_;
  std::string warned_;  // of the certificate
  Gauges gauges_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Role>> StartGatewayRole(Common& common, const std::string& operations) {
  auto role = std::make_unique<GatewayRole>(common);
  TROUPE_RETURN_IF_ERROR(role->Start(operations));
  return role;
}

}  // namespace troupe::actors
