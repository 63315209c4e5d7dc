#include "actors/admin_client.hpp"

#include <unistd.h>

#include <array>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/client/manager_client.hpp"
#include "actors/core/call.hpp"
#include "actors/core/work_pool.hpp"
#include "actors/interfaces/front.hpp"
#include "actors/interfaces/message_types.hpp"
#include "actors/peers/heartbeats.hpp"
#include "actors/peers/local_socket.hpp"
#include "actors/peers/network_peer_directory.hpp"
#include "base/status.hpp"
#include "security/credentials.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kConnect = std::chrono::seconds(2);
constexpr Duration kSlack = std::chrono::seconds(5);

// "uid 1000 at HOST": whose import it is in the manager's queue.
std::string LocalUser() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return absl::StrCat("uid ", geteuid(), " at ", host.data());
}

// Waits for a callback that comes exactly once.
template <class T>
class Waiter {
 public:
  std::function<void(absl::StatusOr<T>)> Callback() {
    return [promise = promise_](absl::StatusOr<T> value) { promise->set_value(std::move(value)); };
  }
  absl::StatusOr<T> Wait() { return future_.get(); }

 private:
  std::shared_ptr<std::promise<absl::StatusOr<T>>> promise_ =
      std::make_shared<std::promise<absl::StatusOr<T>>>();
  std::future<absl::StatusOr<T>> future_ = promise_->get_future();
};

class NetworkAdminClient final : public AdminClient {
 public:
  NetworkAdminClient(Options options, std::shared_ptr<const security::Credentials> credentials)
      : options_(std::move(options)) {
    RegisterMessageTypes(config_);
    config_.load<caf::io::middleman>();
    config_.set("scheduler.max-threads", static_cast<std::size_t>(2));
    SetHeartbeats(config_);
    system_ = std::make_unique<caf::actor_system>(config_);
    directory_ = std::make_unique<NetworkPeerDirectory>(*system_, pool_, std::move(credentials));
    manager_ = std::make_unique<ManagerClient>(*system_, *directory_, options_.manager);
  }
  ~NetworkAdminClient() override {
    manager_.reset();
    directory_.reset();
    front_ = FrontActor();
  }

  absl::StatusOr<proto::AdminReply> Ask(proto::AdminRequest request, Duration timeout) override {
    if (request.has_deploy() && request.deploy().client().empty())
      request.mutable_deploy()->set_client(LocalUser());
    Waiter<proto::AdminReply> waiter;
    manager_->Ask(std::move(request), timeout == Duration::zero() ? options_.timeout : timeout,
                  waiter.Callback());
    auto reply = waiter.Wait();
    // A missing answer says less than the reason why a connection was closed.
    if (absl::IsUnavailable(reply.status()) && !directory_->accepted().last_refusal().empty())
      return absl::PermissionDeniedError(directory_->accepted().last_refusal());
    return reply;
  }

  absl::StatusOr<std::string> Upload(std::shared_ptr<const UploadSource> source,
                                     std::function<void(std::uint64_t)> progress, Duration find) override {
    Waiter<std::string> waiter;
    manager_->Upload(std::move(source), LocalUser(), find == Duration::zero() ? options_.timeout : find,
                     waiter.Callback(), std::move(progress));
    return waiter.Wait();
  }

  absl::StatusOr<proto::InferReply> Infer(proto::InferRequest request, Duration timeout) override {
    TROUPE_RETURN_IF_ERROR(FindFront());
    request.set_timeout_ns(timeout.count());
    auto out = AskFront(std::move(request), timeout + kSlack);
    if (!out.ok()) {
      front_ = FrontActor();  // perhaps another gateway answers the next time
      return out;
    }
    for (const auto& output : out->outputs()) {
      if (!output.data().has_arena()) continue;
      return absl::UnimplementedError(
          absl::StrCat("the gateway is of an earlier release, and left the output '", output.spec().name(),
                       "' on its machine: upgrade it, or send the request to its HTTP port"));
    }
    return out;
  }

 private:
  absl::StatusOr<proto::InferReply> AskFront(proto::InferRequest request, Duration timeout) {
    Waiter<proto::InferReply> waiter;
    system_->spawn([front = front_, request = std::move(request), timeout,
                    done = waiter.Callback()](caf::event_based_actor* self) {
      self->monitor(front);
      self->set_down_handler([self, done](const caf::down_msg&) {
        done(absl::UnavailableError("the gateway went down while it was asked"));
        self->quit();
      });
      self->request(front, timeout, request)
          .then(
              [self, done](proto::InferReply& reply) {
                done(std::move(reply));
                self->quit();
              },
              [self, done, timeout](const caf::error& error) {
                done(ToStatus(error, timeout));
                self->quit();
              });
    });
    return waiter.Wait();
  }

  absl::Status FindFront() {
    if (front_) return absl::OkStatus();
    proto::AdminRequest request;
    request.mutable_cluster_status();
    TROUPE_ASSIGN_OR_RETURN(const auto reply, Ask(std::move(request), options_.timeout));
    absl::Status last =
        absl::UnavailableError("the cluster has no gateway: start one with trouped --role gateway");
    for (const auto& entry : reply.status().members()) {
      if (entry.member().kind() != proto::MEMBER_GATEWAY || entry.member().state() != proto::MEMBER_ALIVE)
        continue;
      last = Connect(entry.member().address());
      if (last.ok()) return last;
    }
    return last;
  }

  absl::Status Connect(const std::string& address) {
    TROUPE_RETURN_IF_ERROR(ParseAddress(address).status());
    caf::scoped_actor self(*system_);
    const auto watcher = caf::actor_cast<PeerWatcherActor>(caf::actor(self));
    directory_->Watch(address, system_->message_types<FrontActor>(), watcher);
    self->receive([this](const proto::PeerUp&,
                         const caf::strong_actor_ptr& front) { front_ = caf::actor_cast<FrontActor>(front); },
                  caf::after(kConnect) >> [] {});
    directory_->Forget(address, watcher);
    if (front_) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("the gateway at ", address, " does not answer within ", FormatDuration(kConnect)));
  }

  const Options options_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  WorkPool pool_{1};
  std::unique_ptr<NetworkPeerDirectory> directory_;
  std::unique_ptr<ManagerClient> manager_;
  FrontActor front_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Create(Options options) {
  TROUPE_ASSIGN_OR_RETURN(const auto address, ParseAddress(options.manager));
  if (!IsLoopback(address.first) && options.tls_dir.empty() && !options.insecure_network)
    return absl::FailedPreconditionError(absl::StrCat(
        "the cluster manager at ", options.manager, " is on another machine: name the folder of your ",
        "certificate with --tls-dir, or say --insecure-network on a network that you trust"));
  std::shared_ptr<const security::Credentials> credentials;
  if (!options.tls_dir.empty()) {
    TROUPE_ASSIGN_OR_RETURN(
        credentials, security::Credentials::Load(security::CredentialFiles::InFolder(options.tls_dir)));
    // The manager closes the connection of any other: it is not a person who asks.
    TROUPE_RETURN_IF_ERROR(security::RequireRole(credentials->Current()->identity(),
                                                 {security::Role::kAdmin, security::Role::kReader},
                                                 "be used by 'troupe'"));
  }
  return std::make_unique<NetworkAdminClient>(std::move(options), std::move(credentials));
}

}  // namespace troupe::actors
