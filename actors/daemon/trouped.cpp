// trouped: the daemon. Reads its configuration, starts its roles, waits for a signal, stops cleanly.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/daemon/certificate_watch.hpp"
#include "actors/daemon/detach.hpp"
#include "actors/daemon/gauges.hpp"
#include "actors/daemon/roles.hpp"
#include "actors/daemon/service_manager.hpp"
#include "actors/peers/local_socket.hpp"
#include "base/nearest.hpp"
#include "base/status.hpp"
#include "gateway/operations_server.hpp"
#include "proto/version.hpp"
#include "transport/steady_clock.hpp"

namespace {

using namespace troupe;
using namespace troupe::actors;

constexpr int kCannotStart = 2;

int Fail(const absl::Status& status, std::optional<StartReport>& report) {
  const std::string why(status.message());
  std::fprintf(stderr, "trouped: %s\n", why.c_str());
  if (report) report->Failed(why, kCannotStart);
  return kCannotStart;
}

void StartLog(const DaemonConfig& config) {
  auto logger = spdlog::stderr_logger_mt("trouped");
  spdlog::set_default_logger(logger);
  spdlog::set_level(config.log.level);
  if (config.log.format == LogFormat::kJson) {
    // Messages are ours and hold no quotes that would need escaping beyond what %v prints.
    spdlog::set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","message":"%v"})",
                        spdlog::pattern_time_type::utc);
  } else {
    spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  }
}

void ShowAdvanced() {
  std::puts("advanced:");
  for (const auto& option : ConfigOptions()) {
    if (!option.is_advanced()) continue;
    const std::string usual = option.set.show ? option.set.show(DaemonConfig()) : "";
    std::printf("  # %s\n  %s%s: %s\n", option.help.c_str(), usual.empty() ? "# " : "", option.key.c_str(),
                usual.c_str());
  }
  std::exit(0);
}

// What is wrong with words that are none of the flags, and what may be meant.
absl::Status UnknownWords(const std::vector<std::string>& words) {
  const auto flag = absl::c_find_if(words, [](const auto& word) { return absl::StartsWith(word, "--"); });
  if (flag == words.end())
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::StrJoin(words, " "), "' is not an option; see trouped --help"));
  const auto name = flag->substr(0, flag->find('='));
  std::vector<std::string> known;
  std::string wrong = absl::StrCat("'", name, "' is not an option");
  for (const auto& option : ConfigOptions()) {
    if (!option.is_advanced()) known.push_back(absl::StrCat("--", option.key));
    if (name == absl::StrCat("--", option.key))
      wrong = absl::StrCat(name, " is an advanced option: say --set ", option.key,
                           "=VALUE, or write it into the file's block 'advanced'");
  }
  return absl::InvalidArgumentError(absl::StrCat(wrong, DidYouMean(name, known), " (see trouped --help)"));
}

// What the caller wants done with the configuration.
enum class Wish { kServe, kDetach, kCheck };

// Flags win over the file; so the file is applied first, wherever --config stands.
absl::StatusOr<DaemonConfig> ReadConfig(int argc, char** argv, Wish& wish) {
  CLI::App app("The Troupe daemon.", "trouped");
  app.set_version_flag("--version", proto::VersionText("trouped"));
  std::string file;
  app.add_option(
      "--config", file,
      "YAML file; each option below is also a key of it, and advanced ones stand in a block of their "
      "own (docs/options.md)");
  bool detach = false;
  app.add_flag("--detach", detach,
               "Go on in the background; the command returns when the daemon serves. Log: DATA/trouped.log");
  std::string checked;
  app.add_option("--check", checked,
                 "Start nothing: say whether this YAML file is a valid configuration (exit code 0 or 2)")
      ->excludes("--config")
      ->excludes("--detach");
  app.add_flag_callback("--help-advanced", ShowAdvanced,
                        "Print the advanced options with their defaults, as they stand in the YAML file");
  std::vector<std::string> assignments;
  app.add_option("--set", assignments, "Any option as KEY=VALUE, also an advanced one; may be repeated")
      ->take_all();
  std::vector<std::string> values(ConfigOptions().size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& option = ConfigOptions()[i];
    if (option.is_advanced()) continue;
    auto* flag = option.is_switch ? app.add_flag_callback(
                                        "--" + option.key, [&values, i] { values[i] = "true"; }, option.help)
                                  : app.add_option("--" + option.key, values[i], option.help);
    if (option.set.show) flag->default_str(option.set.show(DaemonConfig()));
    flag->group(kOptionGroupNames[static_cast<std::size_t>(option.group)]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    std::exit(app.exit(e));
  } catch (const CLI::ExtrasError&) {
    return UnknownWords(app.remaining());
  } catch (const CLI::ParseError& e) {
    return absl::InvalidArgumentError(absl::StrCat(e.what(), " (see trouped --help)"));
  }
  if (detach) wish = Wish::kDetach;
  if (!checked.empty()) {
    wish = Wish::kCheck;
    file = checked;
  }
  DaemonConfig config;
  if (!file.empty()) TROUPE_RETURN_IF_ERROR(ApplyConfigFile(file, config));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& option = ConfigOptions()[i];
    if (values[i].empty()) continue;
    const auto status = option.Give(values[i], config);
    if (!status.ok())
      return absl::InvalidArgumentError(absl::StrCat("--", option.key, ": ", status.message()));
  }
  for (const auto& assignment : assignments)
    if (const auto status = SetOption(assignment, config); !status.ok())
      return absl::InvalidArgumentError(absl::StrCat("--set ", status.message()));
  TROUPE_RETURN_IF_ERROR(CompleteConfig(config));
  return config;
}

// Each connection is a descriptor, and the soft limit is 1,024 on most machines; the hard one is what the
// machine's owner allows. Where it cannot be raised, connections beyond it wait in the kernel's queue.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    spdlog::warn("the limit of open files stays as it is: {}", strerror(errno));
}

class Daemon {
 public:
  explicit Daemon(const DaemonConfig& config) : config_(config) {}
  ~Daemon() {
    operations_.reset();
    while (!roles_.empty()) roles_.pop_back();
  }

  // The line that says where it serves.
  absl::StatusOr<std::string> Start() {
    TROUPE_RETURN_IF_ERROR(CheckPorts(config_));
    TROUPE_ASSIGN_OR_RETURN(common_, Common::Create(config_));
    gauges_.emplace(common_->registry);
    if (common_->credentials != nullptr) certificates_.emplace(*common_->credentials, *common_->directory);
    TROUPE_RETURN_IF_ERROR(Operate());
    const security::Roles roles = config_.member.roles;
    if (roles.Has(security::Role::kManager)) TROUPE_RETURN_IF_ERROR(Add(StartManagerRole(*common_)));
    if (roles.Has(security::Role::kNode)) TROUPE_RETURN_IF_ERROR(Add(StartNodeRole(*common_, address_)));
    if (roles.Has(security::Role::kGateway))
      TROUPE_RETURN_IF_ERROR(Add(StartGatewayRole(*common_, address_)));
    started_ = true;
    if (roles.Has(security::Role::kManager) && roles.Has(security::Role::kNode)) AwaitService();
    std::string line = "ready:";
    for (const auto& role : roles_) absl::StrAppend(&line, " ", role->Describe(), ",");
    absl::StrAppend(&line, " operations at http://", address_);
    service_.emplace(*common_->system);
    service_->Ready(line);
    return line;
  }

  // Until SIGTERM or SIGINT; SIGUSR1: a backup; SIGHUP: certificates are loaded again. The caller has blocked
  // all of `signals`.
  void Run(const sigset_t& signals) {
    const timespec second{1, 0};
    for (;;) {
      const int signal = sigtimedwait(&signals, nullptr, &second);
      if (signal == SIGTERM || signal == SIGINT) return spdlog::info("stopping on signal {}", signal);
      if (signal == SIGUSR1)
        for (auto& role : roles_) role->BackUp();
      if (certificates_) certificates_->Look(signal == SIGHUP, absl::Now());
      if (signal == SIGHUP)
        for (auto& role : roles_) role->Reload();
      Measure();
      service_->Look();
    }
  }

  // All that a gateway here waits for is in this process, so a client may send requests as soon as the daemon says that it is
  // ready. The gateway waits until the node has told what it serves: 10 s at most, and not when the daemon is to stop.
  void AwaitService() {
    constexpr timespec kPause{0, 1'000'000};
    constexpr int kPauses = 10'000;
    for (int i = 0; i < kPauses; ++i) {
      if (std::ranges::all_of(roles_, [](const auto& role) { return role->Serves(); })) return;
      sigset_t pending;
      sigpending(&pending);
      if (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1) return;
      nanosleep(&kPause, nullptr);
    }
    spdlog::warn("not all functions can be served yet, after 10 s: see /v2/health/ready");
  }

  // The gateway first: it stands in front of the others.
  void Stop() {
    service_->Stopping();
    for (auto it = roles_.rbegin(); it != roles_.rend(); ++it) (*it)->Stop(config_.member.stop_grace);
  }

 private:
  absl::Status Add(absl::StatusOr<std::unique_ptr<Role>> role) {
    if (role.ok()) roles_.push_back(std::move(*role));
    return role.status();
  }

  void Measure() {
    gauges_->Set("troupe_arena_bytes", "Room for tensors in this process's arena.", {},
                 static_cast<double>(common_->channel->capacity().count()));
    gauges_->Set("troupe_arena_used_bytes", "Bytes of tensors in this process's arena.", {},
                 static_cast<double>(common_->channel->used().count()));
    MeasureDisk();
    MeasureConnections();
    MeasureSocket("arena", *common_->arena_refusals);
    if (common_->remote != nullptr) MeasureSocket("tensors", *common_->tensor_refusals);
    MeasureOperations();
    if (common_->remote != nullptr)
      gauges_->Set(
          "troupe_tensor_fetches_refused_total",
          "Fetches of tensors by readers that did not know this process's token, or whose certificate was revoked.",
          {}, static_cast<double>(common_->remote->strangers()));
    if (certificates_)
      gauges_->Set("troupe_certificate_expires_seconds",
                   "Time until this daemon's own certificate ends; negative when it has ended.", {},
                   absl::ToDoubleSeconds(certificates_->Left(absl::Now())));
    for (auto& role : roles_) role->Measure();
  }

  void MeasureDisk() {
    std::error_code unknown;
    const auto space = std::filesystem::space(config_.member.data, unknown);
    if (unknown) return;
    gauges_->Set("troupe_data_bytes", "Size of the disk with the daemon's data.", {},
                 static_cast<double>(space.capacity));
    gauges_->Set("troupe_data_free_bytes", "Free room on the disk with the daemon's data.", {},
                 static_cast<double>(space.available));
  }

  void MeasureConnections() {
    auto& accepted = common_->directory->accepted();
    accepted.Sweep(transport::SteadyNow());
    gauges_->Set("troupe_peer_connections", "Connections of other processes to this one's actors.", {},
                 static_cast<double>(accepted.accepted()));
    for (const auto& [reason, count] : accepted.refused())
      gauges_->Set("troupe_peer_connections_refused_total",
                   "Connections of other processes that were closed, by reason.", {{"reason", reason}},
                   static_cast<double>(count));
  }

  void MeasureSocket(const std::string& socket, const transport::SocketRefusals& refusals) {
    for (std::size_t i = 0; i < transport::kSocketRefusalNames.size(); ++i)
      gauges_->Set("troupe_socket_refused_total",
                   "Connections that were refused or closed at a socket for tensors, by reason.",
                   {{"socket", socket}, {"reason", transport::kSocketRefusalNames[i]}},
                   static_cast<double>(refusals.count(static_cast<transport::SocketRefusal>(i))));
  }

  void MeasureOperations() {
    if (operations_ == nullptr) return;
    const auto refused = operations_->load().refused;
    const auto show = [this](const char* reason, std::uint64_t count) {
      gauges_->Set("troupe_operations_refused_total",
                   "Connections and requests that the operations port refused, by reason.",
                   {{"reason", reason}}, static_cast<double>(count));
    };
    show("crowded_out", refused.crowded_out);
    show("slow", refused.slow);
    show("broken", refused.broken);
  }

  absl::Status Operate() {
    gateway::OperationsOptions options;
    const auto colon = config_.member.operations.rfind(':');
    options.http.address = HostOf(config_.member.operations);
    options.http.port = static_cast<std::uint16_t>(std::stoi(config_.member.operations.substr(colon + 1)));
    options.health = [this]() -> absl::Status {
      if (!started_) return absl::UnavailableError("starting");
      for (auto& role : roles_) TROUPE_RETURN_IF_ERROR(role->Health());
      return absl::OkStatus();
    };
    options.on_log_level = [this](const std::string& client, const std::string& level) {
      storage::AuditLine line;
      line.unix_ns = UnixNow();
      line.who = IsLoopback(client) ? "loopback" : "unknown";
      line.from = client;
      line.action = "log.level";
      line.what = absl::StrCat("daemon '", config_.member.name, "' to ", level);
      storage::SetResult(absl::OkStatus(), line);
      common_->audit->Append(std::move(line), [](const absl::Status&) {});
    };
    TROUPE_ASSIGN_OR_RETURN(operations_, gateway::OperationsServer::Start(options, common_->registry));
    address_ = absl::StrCat(config_.member.operations.substr(0, colon), ":", operations_->port());
    return absl::OkStatus();
  }

  const DaemonConfig& config_;
  std::unique_ptr<Common> common_;
  std::optional<ServiceManager> service_;
  std::optional<Gauges> gauges_;                  // of the process; each role has its own
  std::optional<CertificateWatch> certificates_;  // none: connections over TCP are plain
  std::vector<std::unique_ptr<Role>> roles_;
  std::unique_ptr<gateway::OperationsServer> operations_;
  std::string address_;
  std::atomic<bool> started_{false};
};

}  // namespace

int main(int argc, char** argv) {
  std::optional<StartReport> report;  // of a daemon in the background
  Wish wish = Wish::kServe;
  const auto config = ReadConfig(argc, argv, wish);
  if (!config.ok()) return Fail(config.status(), report);
  if (wish == Wish::kCheck) {
    std::printf("valid: '%s', %s\n", config->member.name.c_str(),
                absl::StrJoin(RoleNames(config->member.roles), ", ").c_str());
    return 0;
  }
  if (wish == Wish::kDetach) {
    auto detached = Detach(config->member.data + "/trouped.log");
    if (!detached.ok()) return Fail(detached.status(), report);
    report.emplace(*std::move(detached));
  }
  StartLog(*config);
  RaiseDescriptorLimit();
  // Before any thread is there, so that all of them leave the signals to Run.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  // The end of a terminal ends a daemon that has no certificates to load again.
  if (!config->security.tls_dir.empty() || !config->http.tls_certificate.empty()) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  Daemon daemon(*config);
  const auto ready = daemon.Start();
  if (!ready.ok()) return Fail(ready.status(), report);
  std::printf("%s\n", ready->c_str());
  std::fflush(stdout);
  if (report) report->Ready(*ready);
  daemon.Run(signals);
  daemon.Stop();
  spdlog::info("stopped");
  return 0;
}
