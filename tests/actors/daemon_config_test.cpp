// The daemon's configuration: the table of options, the file, defaults that follow from other options, and
// contradictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "actors/daemon/config.hpp"
#include "gpu/memory/memory_policy.hpp"
#include "tests/certificates.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::actors {
namespace {

namespace fs = std::filesystem;
using security::Role;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class DaemonConfigTest : public ::testing::Test {
 protected:
  absl::Status Apply(const std::string& yaml, DaemonConfig& config) {
    std::ofstream(file()) << yaml;
    return ApplyConfigFile(file(), config);
  }
  // The error without the path: "2: heartbeat: ...".
  std::string Error(const std::string& yaml) {
    DaemonConfig config;
    const auto status = Apply(yaml, config);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << yaml << ": " << status;
    const std::string message(status.message());
    EXPECT_EQ(message.find('\n'), std::string::npos) << "one line: " << message;
    EXPECT_THAT(message, StartsWith(file() + ":"));
    return message.substr(std::min(message.size(), file().size() + 1));
  }
  std::string file() const { return directory_ / "troupe.yaml"; }

 private:
  test::TemporaryDirectory directory_;
};

const ConfigOption& Option(const std::string& key) {
  for (const auto& option : ConfigOptions())
    if (option.key == key) return option;
  ADD_FAILURE() << "there is no option " << key;
  return ConfigOptions().front();
}

DaemonConfig Complete(DaemonConfig config) {
  config.member.roles = {Role::kNode};
  EXPECT_TRUE(CompleteConfig(config).ok());
  return config;
}

// The option as it stands in a file whose first line is something else; its key is in the third line.
std::string InFile(const std::string& key, const std::string& value) {
  return absl::StrCat("name: x\n", Option(key).is_advanced() ? "advanced:\n  " : "\n", key, ": ", value,
                      "\n");
}

TEST_F(DaemonConfigTest, EveryOptionCanBeAFlagAndExplainsItself) {
  std::set<std::string> seen = {
      "config", "set",     "detach",  "check",
      "help",   "version", "advanced"};  // options of the command line that are not keys of the file
  for (const auto& option : ConfigOptions()) {
    EXPECT_TRUE(seen.insert(option.key).second) << option.key << " is there twice";
    EXPECT_EQ(option.key.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), std::string::npos) << option.key;
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_NE(option.set.set, nullptr) << option.key;
  }
}

TEST_F(DaemonConfigTest, FlagsAreFewAndThePageOfOptionsNamesThemAll) {
  // --config, --set, --detach; those that say something and end (--help, --version, --check) are commands.
  constexpr std::size_t kMostFlags = 40, kOtherFlags = 3;
  std::ifstream file("docs/options.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::size_t flags = 0;
  for (const auto& option : ConfigOptions()) {
    flags += option.is_advanced() ? 0 : 1;
    EXPECT_THAT(page, HasSubstr(absl::StrCat(option.is_advanced() ? "| `" : "| `--", option.key, "` |")));
  }
  EXPECT_LE(flags + kOtherFlags, kMostFlags);
}

TEST_F(DaemonConfigTest, AdvancedOptionsHaveABlockOfTheirOwn) {
  DaemonConfig config;
  ASSERT_TRUE(Apply("gpus: 2\nadvanced:\n  hang: 9s\n  ordering: fifo\nname: n\n", config).ok());
  EXPECT_EQ(config.gpus.hang, std::chrono::seconds(9));
  EXPECT_EQ(config.member.name, "n");
  EXPECT_THAT(Error("hang: 9s\n"), HasSubstr("write it in the block 'advanced:'"));
  EXPECT_THAT(Error("advanced:\n  gpus: 2\n"), StartsWith("2: gpus: this is not an advanced option"));
  EXPECT_THAT(Error("advanced:\n  hnag: 2s\n"), StartsWith("2: hnag: unknown key; did you mean 'hang'?"));
  EXPECT_THAT(Error("advanced:\n  hang: 2s\n  hang: 3s\n"), StartsWith("3: hang: is there twice"));
  EXPECT_THAT(Error("advanced: hang\n"), StartsWith("1: advanced: unknown key"));
  EXPECT_TRUE(Apply("advanced: {}\n", config).ok());
}

TEST_F(DaemonConfigTest, AnyOptionIsSetByItsKey) {
  DaemonConfig config;
  EXPECT_TRUE(SetOption("hang=9s", config).ok());
  EXPECT_TRUE(SetOption("topology=link:0-1=12GB", config).ok()) << "only the first = separates key and value";
  EXPECT_TRUE(SetOption("name=n", config).ok());
  EXPECT_EQ(config.gpus.hang, std::chrono::seconds(9));
  EXPECT_EQ(config.member.name, "n");
  EXPECT_THAT(std::string(SetOption("hang", config).message()), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(std::string(SetOption("hnag=1s", config).message()), HasSubstr("did you mean 'hang'"));
  EXPECT_THAT(std::string(SetOption("hang=soon", config).message()), HasSubstr("hang: found 'soon'"));
}

TEST_F(DaemonConfigTest, WhatIsShownAsADefaultSetsThatDefault) {
  std::size_t shown = 0;
  for (const auto& option : ConfigOptions()) {
    if (!option.set.show) continue;
    const auto text = option.set.show(DaemonConfig());
    if (text.empty()) continue;  // the option has no default text of its own
    ++shown;
    DaemonConfig config;
    const auto status = option.set(text, config);
    EXPECT_TRUE(status.ok()) << option.key << ": " << status;
    EXPECT_EQ(option.set.show(config), text) << option.key;
  }
  EXPECT_GT(shown, 40u);
  const auto shows = [](const std::string& key) { return Option(key).set.show(DaemonConfig()); };
  EXPECT_EQ(shows("gpu-memory"), "1GiB");
  EXPECT_EQ(shows("heartbeat"), "100ms");
  EXPECT_EQ(shows("member-lease"), "0s");
  EXPECT_EQ(shows("link-bandwidth"), "6GB");
  EXPECT_EQ(shows("http"), "127.0.0.1:8000");
}

TEST_F(DaemonConfigTest, AFileAndAFlagSetTheSame) {
  struct Row {
    std::string key, value;
    std::function<bool(const DaemonConfig&)> is_set;
  };
  using C = const DaemonConfig&;
  using std::chrono::milliseconds;
  const std::vector<Row> rows = {
      {"role", "manager,gateway",
       [](C c) {
         return c.member.roles == security::Roles({Role::kManager, Role::kGateway});
       }},
      {"role", "all", [](C c) { return c.member.embedded && RoleNames(c.member.roles).size() == 3; }},
      {"name", "n1", [](C c) { return c.member.name == "n1"; }},
      {"data", "/d", [](C c) { return c.member.data == "/d"; }},
      {"run", "/r", [](C c) { return c.member.run == "/r"; }},
      {"bin", "/b", [](C c) { return c.member.bin == "/b"; }},
      {"manager", "h:1", [](C c) { return c.member.manager == "h:1"; }},
      {"listen", "127.0.0.1:2", [](C c) { return c.member.listen == "127.0.0.1:2"; }},
      {"http", "127.0.0.1:3", [](C c) { return c.http.address == "127.0.0.1:3"; }},
      {"operations", "127.0.0.1:4", [](C c) { return c.member.operations == "127.0.0.1:4"; }},
      {"tls-dir", "/t", [](C c) { return c.security.tls_dir == "/t"; }},
      {"insecure-network", "true", [](C c) { return c.security.insecure_network; }},
      {"tensor-network", "stream", [](C c) { return c.tensors.network == TensorNetwork::kStream; }},
      {"tensor-network", "ucx", [](C c) { return c.tensors.network == TensorNetwork::kUcx; }},
      {"tensor-network", "ucx-trusted", [](C c) { return c.tensors.network == TensorNetwork::kUcxTrusted; }},
      {"http-threads", "3", [](C c) { return c.http.threads == 3; }},
      {"arena", "64MiB", [](C c) { return c.tensors.arena == MiB(64); }},
      {"arena-root", "/tmp", [](C c) { return c.tensors.arena_root == "/tmp"; }},
      {"device", "cuda", [](C c) { return c.gpus.device == gpu::DeviceKind::kCuda; }},
      {"gpus", "4", [](C c) { return c.gpus.count == 4; }},
      {"gpu-memory", "2GiB", [](C c) { return c.gpus.memory == GiB(2); }},
      {"link-bandwidth", "12GB", [](C c) { return c.gpus.link.value == 12e9; }},
      {"link-bandwidth", "0", [](C c) { return c.gpus.link.value == 0; }},
      {"compute", "timed", [](C c) { return c.worker.compute == gpu::ComputeMode::kTimed; }},
      {"profile", "/p", [](C c) { return c.worker.profile == "/p"; }},
      {"worker-threads", "2", [](C c) { return c.worker.threads == 2; }},
      {"lease", "0s", [](C c) { return c.worker.lease == Duration::zero(); }},
      {"host-region", "1GiB", [](C c) { return c.gpus.host_region == GiB(1); }},
      {"huge-pages", "off", [](C c) { return c.gpus.huge_pages == HugePages::kOff; }},
      {"allow-faults", "true", [](C c) { return c.security.allow_faults; }},
      {"measure", "requests", [](C c) { return c.node.measure == node::MeasureRule::kRequests; }},
      {"replicas", "3", [](C c) { return c.functions.replicas == 3; }},
      {"scaling-dry-run", "on",
       [](C c) { return c.functions.scaling_effect == cluster::ScalingEffect::kShown; }},
      {"credits-per-gpu", "16", [](C c) { return c.node.credits_per_gpu == 16; }},
      {"state-write-back", "evict",
       [](C c) { return c.node.state_write_back == node::StateWriteBack::kEvict; }},
      {"state-memory", "5MiB", [](C c) { return c.node.state_memory == MiB(5); }},
      {"swap-ahead", "3", [](C c) { return c.node.scheduler.swap_ahead == 3; }},
      {"concurrency", "3", [](C c) { return c.node.scheduler.concurrency == 3; }},
      {"by-layer", "idle", [](C c) { return c.node.scheduler.by_layer == node::ByLayer::kIdle; }},
      {"broadcast", "burst", [](C c) { return c.node.scheduler.broadcast == node::BroadcastRule::kBurst; }},
      {"topology", "switch:0-1", [](C c) { return c.gpus.topology == "switch:0-1"; }},
      {"hang", "9s", [](C c) { return c.gpus.hang == std::chrono::seconds(9); }},
      {"heartbeat", "50ms", [](C c) { return c.membership.heartbeat == milliseconds(50); }},
      {"suspect", "150ms", [](C c) { return c.membership.suspect_after == milliseconds(150); }},
      {"member-lease", "7s", [](C c) { return c.member_lease == std::chrono::seconds(7); }},
      {"provision-command", "./nodes.sh --zone 1",
       [](C c) { return c.machines.command == "./nodes.sh --zone 1"; }},
      {"replace-after", "5m", [](C c) { return c.machines.limits.replace_after == std::chrono::minutes(5); }},
      {"min-nodes", "2", [](C c) { return c.machines.limits.min_nodes == 2; }},
      {"max-nodes", "9", [](C c) { return c.machines.limits.max_nodes == 9; }},
      {"add-above", "2.5", [](C c) { return c.machines.limits.add_above == 2.5; }},
      {"drain-below", "0", [](C c) { return c.machines.limits.drain_below == 0; }},
      {"load-hold", "3m", [](C c) { return c.machines.limits.hold == std::chrono::minutes(3); }},
      {"load-settle", "0s", [](C c) { return c.machines.limits.settle == Duration::zero(); }},
      {"dead", "1.5s", [](C c) { return c.membership.dead_after == milliseconds(1500); }},
      {"default-timeout", "1m", [](C c) { return c.functions.default_timeout == std::chrono::minutes(1); }},
      {"queue", "10", [](C c) { return c.functions.queue == 10; }},
      {"default-deadline", "75ms", [](C c) { return c.functions.default_deadline == milliseconds(75); }},
      {"stop-grace", "0s", [](C c) { return c.member.stop_grace == Duration::zero(); }},
      {"import-memory", "512MiB", [](C c) { return c.imports.memory == MiB(512); }},
      {"import-sandbox", "best-effort",
       [](C c) { return c.imports.sandbox == gpu::ImportSandbox::kBestEffort; }},
      {"import-jobs", "4", [](C c) { return c.imports.jobs == 4; }},
      {"import-time", "10s", [](C c) { return c.imports.time == std::chrono::seconds(10); }},
      {"log-level", "debug", [](C c) { return c.log.level == spdlog::level::debug; }},
      {"addresses", "mapped", [](C c) { return c.worker.addresses == gpu::WeightAddresses::kMapped; }},
      {"cuda-graphs", "off", [](C c) { return c.worker.repeated == gpu::RepeatedLaunch::kStepByStep; }},
      {"cuda-kernels", "persistent", [](C c) { return c.worker.kernels == gpu::KernelForm::kPersistent; }},
      {"log-format", "json", [](C c) { return c.log.format == LogFormat::kJson; }},
      {"actor-threads", "0", [](C c) { return c.actors.threads == 0; }},
  };
  for (const auto& row : rows) {
    DaemonConfig by_flag, by_file;
    const auto flag = Option(row.key).set(row.value, by_flag);
    EXPECT_TRUE(flag.ok()) << row.key << ": " << flag;
    const auto applied = Apply(InFile(row.key, row.value).substr(8), by_file);
    EXPECT_TRUE(applied.ok()) << applied;
    EXPECT_TRUE(row.is_set(by_flag)) << row.key;
    EXPECT_TRUE(row.is_set(by_file)) << row.key;
  }
}

TEST_F(DaemonConfigTest, WrongValuesSayWhatWasFoundAndWhatIsExpected) {
  struct Row {
    std::string key, value, expected;
  };
  const std::vector<Row> rows = {
      {"role", "boss", "manager, gateway, node"},
      {"role", "admin", "manager, gateway, node"},
      {"data", "", "a directory; leave the option out for the default"},
      {"gpus", "0", "from 1 to 64"},
      {"gpus", "65", "from 1 to 64"},
      {"gpus", "-1", "from 1 to 64"},
      {"gpus", "two", "from 1 to 64"},
      {"gpus", "1.5", "from 1 to 64"},
      {"gpu-memory", "64MB!", "512MiB"},
      {"gpu-memory", "0", "512MiB"},
      {"gpu-memory", "-1GiB", "512MiB"},
      {"gpu-memory", "10", "1MiB at least, such as 512MiB or 4GiB (a number without a unit is bytes)"},
      {"gpu-memory", "1023KiB", "1MiB at least"},
      {"host-region", "16", "a number without a unit is bytes"},
      {"arena", "256", "a number without a unit is bytes"},
      {"state-memory", "64", "a number without a unit is bytes"},
      {"import-memory", "4", "a number without a unit is bytes"},
      {"host-region", "much", "4GiB"},
      {"link-bandwidth", "fast", "6GB"},
      {"heartbeat", "soon", "100ms"},
      {"heartbeat", "100", "100ms"},
      {"hang", "0s", "100ms"},
      {"default-timeout", "-1s", "100ms"},
      {"lease", "-1s", "0s"},
      {"compute", "fake", "real, timed"},
      {"device", "cuda:0", "virtual, cuda"},
      {"addresses", "near", "adjacent, mapped"},
      {"cuda-graphs", "true", "on, off"},
      {"cuda-kernels", "some", "whole, persistent"},
      {"broadcast", "on", "off, burst"},
      {"scaling-dry-run", "true", "off, on"},
      {"import-sandbox", "none", "required, best-effort"},
      {"log-level", "loud", "trace, debug"},
      {"log-format", "xml", "text, json"},
      {"insecure-network", "yes", "true or false"},
      {"tensor-network", "rdma", "stream, ucx, ucx-trusted"},
      {"policy", "best", "troupe"},
      {"routing", "best", "locality"},
      {"ordering", "best", "edf"},
      {"gpu", "best", "resident-first"},
      {"eviction", "best", "lru"},
      {"binding", "best", "late, fixed, keep-alive"},
      {"memory-policy", "best", "block-cache"},
      {"actor-threads", "1025", "from 0 to 1024"},
  };
  for (const auto& row : rows) {
    DaemonConfig config;
    const auto status = Option(row.key).set(row.value, config);
    EXPECT_FALSE(status.ok()) << row.key << " " << row.value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.expected)) << row.key;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.value)) << row.key;
    const auto error = Error(InFile(row.key, absl::StrCat("'", row.value, "'")));
    EXPECT_THAT(error, StartsWith(absl::StrCat("3: ", row.key, ": "))) << error;
  }
}

TEST_F(DaemonConfigTest, AnUnknownKeyNamesItsLineAndTheNearestOne) {
  EXPECT_EQ(Error("role: all\n# more\ngpu-memroy: 1GiB\n"),
            "3: gpu-memroy: unknown key; did you mean 'gpu-memory'?");
  EXPECT_EQ(Error("gpu_memory: 1GiB\n"), "1: gpu_memory: unknown key; did you mean 'gpu-memory'?");
  EXPECT_EQ(Error("something-else-altogether: 1\n"),
            "1: something-else-altogether: unknown key; trouped --help and --help-advanced list them");
  EXPECT_THAT(Error("? [a, b]\n: 1\n"), HasSubstr("unknown key"));
}

TEST_F(DaemonConfigTest, AnEmptyBlockOfAdvancedOptionsIsNoMistake) {
  DaemonConfig config;
  EXPECT_TRUE(Apply("name: x\nadvanced:\n#  hang: 10s\n", config).ok());
}

TEST_F(DaemonConfigTest, WhatIsNoListOfKeysNamesItsLine) {
  EXPECT_THAT(Error("name: x\n@broken: y\n"), StartsWith("2: this is not valid YAML"));
  EXPECT_THAT(Error("name: [x\n"), HasSubstr("this is not valid YAML"));
  EXPECT_THAT(Error("name: x\n---\nname: y\n"), HasSubstr("a second document begins here"));
  EXPECT_THAT(Error("- role\n- all\n"), StartsWith("1: expected 'key: value'"));
  EXPECT_THAT(Error("all\n"), StartsWith("1: expected 'key: value'"));
  EXPECT_THAT(Error("name: {first: x}\n"), StartsWith("1: name: expected a value"));
  EXPECT_THAT(Error("role: [[all]]\n"), StartsWith("1: role: expected a list of plain values"));
  EXPECT_THAT(Error("gpus: 1\nname: x\ngpus: 2\n"), StartsWith("3: gpus: is there twice"));
}

TEST_F(DaemonConfigTest, AListAnEmptyFileAndNoFile) {
  DaemonConfig config;
  EXPECT_TRUE(Apply("role: [manager, node]\n", config).ok());
  EXPECT_EQ(config.member.roles, security::Roles({Role::kManager, Role::kNode}));
  EXPECT_TRUE(Apply("# nothing yet\n", config).ok());
  EXPECT_EQ(ApplyConfigFile("/tmp", config).message(),
            "the configuration '/tmp' is a directory; name a YAML file");
  const auto missing = ApplyConfigFile("/nowhere/troupe.yaml", config);
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nowhere/troupe.yaml"));
}

TEST_F(DaemonConfigTest, ANamedSlotOverridesThePresetWhereverItStands) {
  for (const char* yaml :
       {"policy: torpor\nadvanced: {eviction: lru}\n", "advanced: {eviction: lru}\npolicy: torpor\n"}) {
    DaemonConfig config;
    ASSERT_TRUE(Apply(yaml, config).ok());
    EXPECT_EQ(Complete(config).policies.chosen.eviction, "lru");
  }
}

TEST_F(DaemonConfigTest, APublishedSystemSetsOptionsThatTheOperatorHasNotSet) {
  DaemonConfig config;
  ASSERT_TRUE(Apply("policy: infless\n", config).ok());
  const auto infless = Complete(config);
  EXPECT_EQ(infless.policies.chosen.ordering, "fifo");
  EXPECT_EQ(infless.policies.chosen.memory, "static");
  EXPECT_EQ(infless.node.isolation.mode, proto::ISOLATION_FUNCTION);
  EXPECT_EQ(infless.node.isolation.runtimes, 8u);
  EXPECT_EQ(infless.worker.intermediates, "host-only");
  for (const char* yaml :
       {"policy: streambox\nruntimes: 2\nadvanced: {intermediates: no-movement, memory-policy: fine}\n",
        "advanced: {memory-policy: fine, intermediates: no-movement}\nruntimes: 2\npolicy: streambox\n"}) {
    DaemonConfig named;
    ASSERT_TRUE(Apply(yaml, named).ok());
    const auto streambox = Complete(named);
    EXPECT_EQ(streambox.node.isolation.mode, proto::ISOLATION_TENANT);
    EXPECT_EQ(streambox.node.isolation.runtimes, 2u);
    EXPECT_EQ(streambox.worker.intermediates, "no-movement");
    EXPECT_EQ(streambox.policies.chosen.memory, "fine");
  }
}

TEST_F(DaemonConfigTest, AnOptionThatIsSetToItsDefaultHoldsOverThePreset) {
  DaemonConfig config;
  ASSERT_TRUE(SetOption("policy=stream-only", config).ok());
  ASSERT_TRUE(SetOption("isolation=shared", config).ok());
  ASSERT_TRUE(SetOption("runtimes=0", config).ok());
  EXPECT_EQ(Complete(config).node.isolation.mode, proto::ISOLATION_SHARED);
}

TEST_F(DaemonConfigTest, ASystemThatOnlyTheSimulatorHasIsRefusedByName) {
  EXPECT_THAT(Error("policy: astraea\n"),
              AllOf(StartsWith("1: policy: 'astraea' hands results"), HasSubstr("troupe experiment")));
  EXPECT_THAT(Error("policy: streambax\n"), AllOf(HasSubstr("troupe"), HasSubstr("stream-only, streambox")));
}

TEST_F(DaemonConfigTest, APresetNamesTheWorkersMemoryPolicyToo) {
  EXPECT_EQ(Complete({}).policies.chosen.memory, gpu::kDefaultMemory);
  DaemonConfig config;
  ASSERT_TRUE(Apply("policy: torpor-block\n", config).ok());
  EXPECT_EQ(Complete(config).policies.chosen.memory, "block-cache");
  ASSERT_TRUE(Apply("advanced: {memory-policy: static}\n", config).ok());
  EXPECT_EQ(Complete(config).policies.chosen.memory, "static");
}

TEST_F(DaemonConfigTest, DefaultsFollowFromTheRoleAndTheDirectory) {
  DaemonConfig none;
  EXPECT_THAT(std::string(CompleteConfig(none).message()), HasSubstr("--role"));
  auto config = Complete({});
  EXPECT_THAT(config.member.name, testing::EndsWith("-node"));
  EXPECT_EQ(config.member.data, (fs::current_path() / "troupe-data").string());
  EXPECT_EQ(config.member.bin, fs::read_symlink("/proc/self/exe").parent_path().string());
  EXPECT_EQ(config.worker.lease, std::chrono::seconds(30));
  config.member.data = "/tmp/x/../d";
  config.member.run.clear();
  config = Complete(config);
  EXPECT_EQ(config.member.data, "/tmp/d");
  EXPECT_EQ(config.member.run, "/tmp/d/run");
  // A long path leaves no room for a socket's name, so the directory is a short path that only this test
  // uses.
  config.member.data = "/" + std::string(80, 'd');
  config.member.run.clear();
  config = Complete(config);
  EXPECT_LE(config.member.run.size(), 70u);
  auto other = config;
  other.member.data += "d";
  other.member.run.clear();
  EXPECT_NE(Complete(other).member.run, config.member.run);
  config.member.run = "/" + std::string(80, 'r');
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("70 bytes"));
  DaemonConfig embedded;
  ASSERT_TRUE(Option("role").set("all", embedded).ok());
  ASSERT_TRUE(CompleteConfig(embedded).ok());
  EXPECT_EQ(embedded.worker.lease, Duration::zero()) << "workers of an embedded daemon outlive it";
}

TEST_F(DaemonConfigTest, OtherThanLoopbackHasToBeSaid) {
  using Address = std::string& (*)(DaemonConfig&);
  const std::vector<std::pair<std::string, Address>> addresses = {
      {"listen", [](DaemonConfig& config) -> std::string& { return config.member.listen; }},
      {"http", [](DaemonConfig& config) -> std::string& { return config.http.address; }},
      {"operations", [](DaemonConfig& config) -> std::string& { return config.member.operations; }}};
  for (const auto& [option, field] : addresses) {
    for (const char* open : {"0.0.0.0:0", "192.168.1.1:80", "[::]:1"}) {
      DaemonConfig config;
      config.member.roles = {Role::kNode};
      field(config) = open;
      const auto refused = CompleteConfig(config);
      if (option == "http") {  // it judges clients on other machines by their API keys
        EXPECT_TRUE(refused.ok()) << refused;
        continue;
      }
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << option << " " << open;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("--insecure-network"));
      EXPECT_THAT(std::string(refused.message()), HasSubstr(option));
      config.security.insecure_network = true;
      if (option == "listen") continue;  // below: other members have to be able to dial it
      EXPECT_TRUE(CompleteConfig(config).ok()) << option << " " << open;
    }
    for (const char* loopback : {"127.0.0.1:0", "127.1.2.3:80", "localhost:80", "[::1]:80"}) {
      DaemonConfig config;
      config.member.roles = {Role::kNode};
      field(config) = loopback;
      EXPECT_TRUE(CompleteConfig(config).ok()) << option << " " << loopback;
    }
    for (const char* wrong : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"}) {
      DaemonConfig config;
      config.member.roles = {Role::kNode};
      field(config) = wrong;
      EXPECT_TRUE(absl::IsInvalidArgument(CompleteConfig(config))) << option << " " << wrong;
    }
  }
}

TEST_F(DaemonConfigTest, UcxIsTakenBeyondLoopbackOnlyOnANetworkThatIsSaidToBeTrusted) {
  test::TestAuthority authority;
  authority.Issue("rack-3", {security::Role::kNode});
  for (const bool certified : {false, true}) {
    DaemonConfig config;
    config.member.roles = {Role::kNode};
    config.tensors.network = TensorNetwork::kUcx;
    EXPECT_EQ(CompleteConfig(config), absl::OkStatus()) << "all addresses are loopback";
    config.security.insecure_network = !certified;
    if (certified) config.security.tls_dir = authority.folder("rack-3");
    using Address = std::string& (*)(DaemonConfig&);
    for (const auto& [option, field] : std::vector<std::pair<std::string, Address>>{
             {"listen", [](DaemonConfig& c) -> std::string& { return c.member.listen; }},
             {"manager", [](DaemonConfig& c) -> std::string& { return c.member.manager; }}}) {
      DaemonConfig open = config;
      open.member.name.clear();
      field(open) = "10.0.0.2:7400";
      const auto refused = CompleteConfig(open);
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << option;
      EXPECT_THAT(std::string(refused.message()),
                  AllOf(StartsWith("--tensor-network ucx: --" + option + " '10.0.0.2:7400'"),
                        HasSubstr("can end this daemon"), HasSubstr("ucx-trusted")));
      open.tensors.network = TensorNetwork::kUcxTrusted;
      EXPECT_EQ(CompleteConfig(open), absl::OkStatus()) << option;
    }
  }
}

TEST_F(DaemonConfigTest, AMemberListensAtAnAddressThatOthersCanDial) {
  for (const char* any : {"0.0.0.0:0", "0.0.0.0:7401", "[::]:1", "[0:0::0]:1"}) {
    DaemonConfig config;
    config.member.roles = {Role::kNode};
    config.security.insecure_network = true;
    config.member.listen = any;
    const auto refused = CompleteConfig(config);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << any;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("--listen ", any, ": other members dial")));
  }
  DaemonConfig config;
  config.member.roles = {Role::kNode};
  config.security.insecure_network = true;
  config.member.listen = "192.168.1.1:80";
  EXPECT_TRUE(CompleteConfig(config).ok());
}

TEST_F(DaemonConfigTest, AnHttpServersAddressIsResolvedOrRefusedBeforeAnythingIsStarted) {
  using Address = std::string& (*)(DaemonConfig&);
  const std::vector<std::pair<std::string, Address>> addresses = {
      {"--http", [](DaemonConfig& config) -> std::string& { return config.http.address; }},
      {"--operations", [](DaemonConfig& config) -> std::string& { return config.member.operations; }}};
  for (const auto& [option, field] : addresses) {
    DaemonConfig config;
    config.member.roles = {Role::kGateway};
    field(config) = "localhost:8001";
    EXPECT_TRUE(CompleteConfig(config).ok()) << option;
    EXPECT_EQ(field(config), "127.0.0.1:8001") << option;
    field(config) = "[::1]:8001";
    EXPECT_TRUE(CompleteConfig(config).ok()) << option;
    EXPECT_EQ(HostOf(field(config)), "::1");
    config.security.insecure_network = true;
    for (const char* name : {"example.org:80", "127.0.0.x:80", ":80", "*:80"}) {
      field(config) = name;
      const auto refused = CompleteConfig(config);
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << option << " " << name;
      EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("found '", name, "'")));
      EXPECT_THAT(std::string(refused.message()), HasSubstr(option));
    }
  }
  DaemonConfig config;
  config.member.roles = {Role::kNode};
  config.security.insecure_network = true;
  config.member.listen = "example.org:80";
  EXPECT_TRUE(CompleteConfig(config).ok()) << "the address where actors listen may be a name";
}

TEST_F(DaemonConfigTest, AMembersNameIsOneWord) {
  for (const auto& [name, good] : {std::pair<std::string, bool>{"node-1.rack_2", true},
                                   {std::string(128, 'n'), true},
                                   {std::string(129, 'n'), false},
                                   {"a b", false},
                                   {"-a", false},
                                   {"a/b", false},
                                   {"a\n", false}}) {
    DaemonConfig config;
    config.member.roles = {Role::kNode};
    config.member.name = name;
    const auto status = CompleteConfig(config);
    EXPECT_EQ(status.ok(), good) << name << ": " << status;
    if (!good) {
      EXPECT_THAT(std::string(status.message()), StartsWith("--name: '"));
    }
  }
  DaemonConfig both;
  both.member.roles = {Role::kNode, Role::kGateway};
  both.member.name = std::string(125, 'n');
  EXPECT_FALSE(CompleteConfig(both).ok()) << "its gateway has the same name, NAME-gateway";
}

TEST_F(DaemonConfigTest, ADaemonThatLooksForAManagerNeedsItsPort) {
  DaemonConfig config;
  config.member.roles = {Role::kNode};
  config.member.manager = "10.0.0.1:7400";
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("--tls-dir"));
  config.security.insecure_network = true;
  EXPECT_TRUE(CompleteConfig(config).ok());
  config.security.insecure_network = false;
  config.member.manager = "127.0.0.1:0";
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("127.0.0.1:0"));
  config.member.roles = {Role::kManager, Role::kNode};
  EXPECT_TRUE(CompleteConfig(config).ok()) << "the daemon chooses one itself";
  config.member.manager = "10.0.0.1:7400";
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("--insecure-network"));
}

TEST_F(DaemonConfigTest, RolesAndNameAreThoseOfTheCertificate) {
  using security::Role;
  test::TestAuthority authority;
  authority.Issue("rack-3", {Role::kNode});
  DaemonConfig config;
  config.member.roles = {Role::kNode};
  config.member.listen = "10.0.0.2:0";
  config.member.manager = "10.0.0.1:7400";
  config.security.tls_dir = authority.folder("rack-3");
  ASSERT_EQ(CompleteConfig(config), absl::OkStatus());
  EXPECT_EQ(config.member.name, "rack-3");
  config.member.name = "rack-4";
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("--name rack-4 is not the name"));
  config.member.name.clear();
  config.member.roles = {Role::kGateway};
  EXPECT_THAT(std::string(CompleteConfig(config).message()),
              AllOf(HasSubstr("'rack-3' (node"), HasSubstr("--role gateway")));
  // /metrics asks for no client certificate.
  config.member.roles = {Role::kNode};
  config.member.operations = "10.0.0.2:0";
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("--insecure-network"));
  config.member.operations = "127.0.0.1:0";
  config.security.tls_dir = authority.folder("absent");
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("troupe ca issue"));
}

TEST_F(DaemonConfigTest, HeartbeatSuspectAndDeadGrow) {
  using std::chrono::milliseconds;
  for (const auto& [heartbeat, suspect, dead, good] : {std::tuple{100, 400, 800, true},
                                                       {400, 400, 800, false},
                                                       {100, 800, 800, false},
                                                       {0, 400, 800, false}}) {
    DaemonConfig config;
    config.member.roles = {Role::kManager};
    config.membership.heartbeat = milliseconds(heartbeat);
    config.membership.suspect_after = milliseconds(suspect);
    config.membership.dead_after = milliseconds(dead);
    EXPECT_EQ(CompleteConfig(config).ok(), good) << heartbeat << " " << suspect << " " << dead;
  }
}

TEST_F(DaemonConfigTest, ALeaseIsNoShorterThanDeathAndMoreNodesAreAllowedThanNeeded) {
  DaemonConfig config;
  config.member.roles = {Role::kManager};
  for (const auto& [lease, good] : {std::pair{0, true}, {799, false}, {800, true}}) {
    config.member_lease = std::chrono::milliseconds(lease);
    EXPECT_EQ(CompleteConfig(config).ok(), good) << lease;
  }
  config.machines.limits.min_nodes = 3;
  EXPECT_TRUE(CompleteConfig(config).ok()) << "without a maximum the load decides nothing";
  config.machines.limits.max_nodes = 2;
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("max-nodes"));
  config.machines.limits.max_nodes = 0;
  config.machines.limits.drain_below = 4;
  EXPECT_THAT(std::string(CompleteConfig(config).message()), HasSubstr("drain-below has to be the smaller"));
  EXPECT_THAT(Error("advanced:\n  add-above: many\n"),
              StartsWith("2: add-above: found 'many', expected a number"));
  EXPECT_THAT(Error("advanced:\n  add-above: nan\n"), HasSubstr("expected a number"));
  EXPECT_THAT(Error("advanced:\n  drain-below: -1\n"), HasSubstr("expected a number"));
}

}  // namespace
}  // namespace troupe::actors
