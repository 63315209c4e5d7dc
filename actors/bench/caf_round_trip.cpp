// What one protobuf request between two actors costs with the daemon's settings of CAF: one at a time, in one
// process or over loopback TCP.
//   caf_round_trip [--requests N]                  both actors in this process
//   caf_round_trip --serve                         prints its port, answers until its input ends
//   caf_round_trip --peer PORT [--requests N]      asks a --serve of this machine
// and trouped's options of CAF's scheduler (--set actor-threads=1). With `--at HOST` both ends use Troupe's own guarded connections (a
// Unix socket for a loopback address), and with `--tls-dir DIR` TLS: a certificate for HOST with the roles
// gateway and admin. Prints one JSON object.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <future>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "actors/daemon/caf_settings.hpp"
#include "actors/interfaces/interface.hpp"
#include "actors/peers/network_peer_directory.hpp"
#include "base/status.hpp"
#include "proto/request.pb.h"

namespace troupe::actors {
namespace {

using EchoActor = Interface<Asks<proto::InferRequest, proto::InferReply>>;
using SteadyClock = std::chrono::steady_clock;
using Samples = std::vector<Duration>;

constexpr Duration kAnswerWithin = std::chrono::seconds(60);

struct Options {
  bool serve = false;
  std::uint16_t peer = 0;
  unsigned requests = 20'000;
  std::string at;  // empty: CAF's own connections, at 127.0.0.1
  std::string tls_dir;
  DaemonConfig config;
};

EchoActor::behavior_type Echo() {
  return {[](proto::InferRequest& request) {
    proto::InferReply reply;
    *reply.mutable_function() = std::move(*request.mutable_function());
    *reply.mutable_outputs() = std::move(*request.mutable_inputs());
    return reply;
  }};
}

// As a client of a no-op model with 16 floats would ask.
proto::InferRequest Request() {
  proto::InferRequest request;
  request.mutable_function()->set_name("noop");
  request.mutable_function()->set_version("1");
  auto& input = *request.add_inputs();
  input.mutable_spec()->set_name("x");
  input.mutable_spec()->set_type(proto::FP32);
  input.mutable_spec()->add_shape(1);
  input.mutable_spec()->add_shape(16);
  input.mutable_data()->set_inlined(std::string(64, '\1'));
  return request;
}

// Asks, waits for the answer, asks again; ends with the last answer or the first error.
class Asker : public caf::event_based_actor {
 public:
  Asker(caf::actor_config& config, EchoActor echo, unsigned requests, std::promise<Samples> done)
      : caf::event_based_actor(config), echo_(std::move(echo)), left_(requests), done_(std::move(done)) {
    samples_.reserve(requests);
  }
  caf::behavior make_behavior() override {
    Ask();
    return {};
  }

 private:
  void Ask() {
    auto message = Request();
    const auto sent = SteadyClock::now();
    request(echo_, caf::infinite, std::move(message))
        .then(
            [this, sent](const proto::InferReply&) {
              samples_.push_back(SteadyClock::now() - sent);
              if (--left_ > 0) return Ask();
              done_.set_value(std::move(samples_));
            },
            [this](const caf::error&) { done_.set_value({}); });
  }

  EchoActor echo_;
  unsigned left_;
  std::promise<Samples> done_;
  Samples samples_;
};

int Fail(const std::string& message) {
  std::fprintf(stderr, "caf_round_trip: %s\n", message.c_str());
  return 1;
}

absl::StatusOr<std::uint16_t> Publish(caf::actor_system& system, NetworkPeerDirectory& directory,
                                      const EchoActor& echo, const std::string& at) {
  if (!at.empty())
    return directory.Listen(caf::actor_cast<caf::strong_actor_ptr>(echo), system.message_types<EchoActor>(),
                            at, 0);
  const auto port = system.middleman().publish(echo, 0, "127.0.0.1");
  if (!port) return absl::UnavailableError(system.render(port.error()));
  return *port;
}

int Serve(caf::actor_system& system, NetworkPeerDirectory& directory, const std::string& at) {
  const auto echo = system.spawn(Echo);
  const auto port = Publish(system, directory, echo, at);
  if (!port.ok()) return Fail("cannot listen: " + std::string(port.status().message()));
  std::printf("%u\n", *port);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) continue;
  caf::anon_send_exit(echo, caf::exit_reason::user_shutdown);  // the system waits for its actors
  return 0;
}

// Null when nothing answers there.
EchoActor Find(caf::actor_system& system, NetworkPeerDirectory& directory, const Options& options) {
  EchoActor echo;
  caf::scoped_actor self(system);
  directory.Watch(options.at + ":" + std::to_string(options.peer), system.message_types<EchoActor>(),
                  caf::actor_cast<PeerWatcherActor>(caf::actor(self)));
  self->receive([&](const proto::PeerUp&,
                    const caf::strong_actor_ptr& peer) { echo = caf::actor_cast<EchoActor>(peer); },
                caf::after(kAnswerWithin) >> [] {});
  return echo;
}

int Measure(caf::actor_system& system, NetworkPeerDirectory& directory, const Options& options) {
  EchoActor echo;
  if (options.peer == 0) {
    echo = system.spawn(Echo);
  } else if (!options.at.empty()) {
    echo = Find(system, directory, options);
    if (!echo) return Fail("no peer there: " + directory.accepted().last_refusal());
  } else {
    auto remote = system.middleman().remote_actor<EchoActor>("127.0.0.1", options.peer);
    if (!remote) return Fail("no peer at that port: " + system.render(remote.error()));
    echo = std::move(*remote);
  }
  std::promise<Samples> done;
  auto answered = done.get_future();
  const unsigned warm_up = options.requests / 10 + 1;
  auto asker = system.spawn<Asker>(std::move(echo), options.requests + warm_up, std::move(done));
  const bool in_time = answered.wait_for(kAnswerWithin) == std::future_status::ready;
  auto samples = in_time ? answered.get() : Samples();
  caf::anon_send_exit(asker, caf::exit_reason::user_shutdown);
  if (samples.size() <= warm_up) return Fail("the requests were not answered");
  samples.erase(samples.begin(), samples.begin() + warm_up);
  std::sort(samples.begin(), samples.end());
  const auto at = [&samples](double part) {
    return static_cast<double>(
               samples[static_cast<std::size_t>(part * static_cast<double>(samples.size() - 1))].count()) /
           1e3;
  };
  std::printf("{\"requests\": %zu, \"p50_us\": %.2f, \"p99_us\": %.2f}\n", samples.size(), at(0.5), at(0.99));
  return 0;
}

int Run(int argc, char** argv) {
  Options options;
  CLI::App app("One protobuf request at a time between two actors.", "caf_round_trip");
  app.add_flag("--serve", options.serve, "answer requests of another process");
  app.add_option("--peer", options.peer, "port of a --serve; without it both actors are in this process");
  app.add_option("--at", options.at, "address of guarded connections; without it CAF's own, at 127.0.0.1");
  app.add_option("--tls-dir", options.tls_dir, "directory of the certificate for --at");
  app.add_option("--requests", options.requests, "requests that are measured")->check(CLI::PositiveNumber);
  std::vector<std::string> assignments;
  app.add_option("--set", assignments, "an option of trouped as KEY=VALUE; may be repeated")->take_all();
  CLI11_PARSE(app, argc, argv);
  for (const auto& assignment : assignments)
    if (const auto status = SetOption(assignment, options.config); !status.ok())
      return Fail(std::string(status.message()));
  caf::actor_system_config config;
  ApplyCafSettings(options.config, config);
  caf::actor_system system(config);
  std::shared_ptr<security::Credentials> credentials;
  if (!options.tls_dir.empty()) {
    auto loaded = security::Credentials::Load(security::CredentialFiles::InFolder(options.tls_dir));
    if (!loaded.ok()) return Fail(std::string(loaded.status().message()));
    credentials = *std::move(loaded);
  }
  WorkPool pool(1);
  NetworkPeerDirectory directory(system, pool, credentials);
  const int code = options.serve ? Serve(system, directory, options.at) : Measure(system, directory, options);
  directory.Clear();
  return code;
}

}  // namespace
}  // namespace troupe::actors

int main(int argc, char** argv) {
  return troupe::actors::Run(argc, argv);
}
