#include "sim/experiments/scale_manager.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/digest.hpp"

namespace troupe::sim {

namespace {

using cluster::Event;
using std::chrono::hours;
using std::chrono::milliseconds;

constexpr std::uint64_t kRequests = 20;
constexpr Duration kRun = milliseconds(10);
constexpr std::uint32_t kSmPercent = 12;
constexpr const char* kGateway = "gateway";
constexpr std::uint32_t kDeploymentsOfPulse = 20;

std::string NameOf(std::uint32_t function) {
  return absl::StrCat("function-", function);
}
std::string NodeOf(std::size_t node) {
  return absl::StrCat("node-", node);
}

cluster::ClusterSettings Settings() {
  cluster::ClusterSettings settings;
  settings.collect_every = hours(1000);
  settings.membership.suspect_after = hours(1000);
  settings.membership.dead_after = hours(2000);
  settings.scaling.owning = "always";
  return settings;
}

cluster::Catalogue EmptyCatalogue() {
  auto catalogue = cluster::Catalogue::Of({}, "scale");
  TROUPE_CHECK(catalogue.ok(), "an empty catalogue can be read");
  return *std::move(catalogue);
}

void Describe(const char* name, std::int64_t columns, proto::TensorSpec& tensor) {
  tensor.set_name(name);
  tensor.set_type(proto::FP32);
  tensor.add_shape(-1);
  tensor.add_shape(columns);
}

proto::FunctionRecord ImportedModel(std::uint32_t number) {
  proto::FunctionRecord record;
  record.set_model_digest(Sha256Hex(absl::StrCat("model ", number)));
  record.set_weights_digest(Sha256Hex(absl::StrCat("weights ", number)));
  record.set_onnx_digest(Sha256Hex(absl::StrCat("onnx ", number)));
  record.set_weights_bytes(MiB(1).count());
  record.set_model_bytes(1000);
  Describe("input", 784, *record.add_inputs());
  Describe("output", 10, *record.add_outputs());
  return record;
}

}  // namespace

ScaleManager::ScaleManager(const ScaleSize& size) : size_(size), cluster_(Settings(), EmptyCatalogue()) {
  On(cluster::Started());
  JoinAs(kGateway, true);
  for (std::uint32_t node = 0; node < size.nodes(); ++node) Join();
}

void ScaleManager::Join() {
  JoinAs(NodeOf(joined_++), false);
}

void ScaleManager::JoinAs(const std::string& name, bool gateway) {
  joining_ = name;
  cluster::JoinAsked asked{.ask = ++asks_, .daemon = name, .gateway = gateway, .front = gateway ? 1U : 0U};
  auto& member = *asked.join.mutable_member();
  member.set_name(name);
  member.set_address(name);
  member.set_kind(gateway ? proto::MEMBER_GATEWAY : proto::MEMBER_NODE);
  for (std::uint32_t i = 0; !gateway && i < size_.GpusOfNode(); ++i) {
    auto& gpu = *member.add_gpus();
    gpu.set_index(i);
    gpu.set_memory_bytes(GiB(80).count());
    gpu.set_state("ready");
    gpu.set_kind("scale");
  }
  if (!gateway) member.set_host_region_bytes(GiB(1000).count());
  On(std::move(asked));
}

void ScaleManager::Deploy(std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    DeployOne(deployed_++);
    if (deployed_ % kDeploymentsOfPulse == 0) Pulse(milliseconds(50));
  }
}

void ScaleManager::DeployOne(std::uint32_t number) {
  cluster::AdminAsked asked{.ask = ++asks_};
  auto& wish = *asked.request.mutable_deploy();
  wish.set_name(NameOf(number));
  wish.mutable_sharing()->set_sm_partition(kSmPercent);
  wish.mutable_sharing()->add_automatic("quota_request");
  On(std::move(asked));
  On(cluster::ModelImported{.ask = asks_, .function = ImportedModel(number)});
}

void ScaleManager::Unload(std::uint32_t function) {
  cluster::AdminAsked asked{.ask = ++asks_};
  asked.request.mutable_load()->mutable_key()->set_name(NameOf(function));
  On(std::move(asked));
}

void ScaleManager::Pulse(Duration passed) {
  now_ += passed;
  On(cluster::TimerFired{cluster::Timer::kPulse});
}

std::uint64_t ScaleManager::SettleCopies() {
  constexpr std::uint64_t kQuiet = 16;
  std::uint64_t pulses = 0;
  for (std::uint64_t quiet = 0; quiet < kQuiet; ++pulses) {
    const auto before = counts_.adoptions;
    Pulse(Duration::zero());
    quiet = counts_.adoptions == before ? quiet + 1 : 0;
  }
  return pulses - kQuiet;
}

cluster::HeartbeatHeard ScaleManager::HeartbeatOf(std::size_t member) {
  cluster::HeartbeatHeard heard{.ask = ++asks_};
  heard.heartbeat.set_name(member == 0 ? std::string(kGateway) : NodeOf(member - 1));
  heard.heartbeat.set_epoch(epochs_.at(member));
  heard.heartbeat.set_sequence(++heartbeats_);
  return heard;
}

void ScaleManager::TellLoads(std::uint32_t functions) {
  std::vector<cluster::HeartbeatHeard> heard;
  for (std::size_t member = 0; member < epochs_.size(); ++member) heard.push_back(HeartbeatOf(member));
  const auto add = [&](std::size_t member, std::uint32_t function) {
    auto* demand = heard[member].heartbeat.add_function_demand();
    demand->mutable_key()->set_name(NameOf(function));
    demand->mutable_key()->set_version("1");
    return demand;
  };
  for (std::uint32_t i = 0; i < functions; ++i) {
    add(0, i)->set_arrived(kRequests);
    auto* run = add(1 + i % (epochs_.size() - 1), i);
    run->set_served(kRequests);
    run->set_gpu_ns(kRequests * static_cast<std::uint64_t>(kRun.count()) * kSmPercent / 100);
  }
  for (auto& heartbeat : heard) On(std::move(heartbeat));
}

void ScaleManager::On(Event event) {
  const auto began = std::chrono::steady_clock::now();
  const auto effects = cluster_.On(std::move(event), now_, now_.time_since_epoch().count());
  const auto spent = std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - began);
  counts_.spent += spent;
  counts_.longest = std::max(counts_.longest, spent);
  std::vector<Event> answers;
  for (const auto& effect : effects) {
    Count(effect);
    AddAnswer(effect, answers);
  }
  for (auto& answer : answers) On(std::move(answer));
}

void ScaleManager::Count(const cluster::Effect& effect) {
  if (std::holds_alternative<cluster::Commit>(effect)) ++counts_.commits;
  if (std::holds_alternative<cluster::AskAdoption>(effect)) ++counts_.adoptions;
  if (std::holds_alternative<cluster::Answer<proto::AdminReply>>(effect)) ++counts_.answers;
  if (const auto* told = std::get_if<cluster::TellMembers>(&effect)) {
    ++counts_.updates;
    counts_.update_bytes += told->update.ByteSizeLong();
  }
  if (const auto* joined = std::get_if<cluster::Answer<proto::JoinReply>>(&effect))
    counts_.snapshot_bytes.push_back(joined->reply.ByteSizeLong());
}

void ScaleManager::AddAnswer(const cluster::Effect& effect, std::vector<Event>& answers) {
  if (const auto* commit = std::get_if<cluster::Commit>(&effect))
    answers.emplace_back(cluster::Committed{.ticket = commit->ticket});
  if (const auto* ask = std::get_if<cluster::AskAdoption>(&effect))
    answers.emplace_back(cluster::AdoptionAnswered{
        .digest = ask->digest,
        .node = ask->node,
        .epoch = ask->epoch,
        .function = ask->function.key().name(),
        .status = refuse_ ? absl::UnavailableError("the node takes no copies now") : absl::OkStatus()});
  if (const auto* joined = std::get_if<cluster::Answer<proto::JoinReply>>(&effect)) {
    TROUPE_CHECK(joined->reply.epoch() != 0, "a member is refused that fits the cluster");
    if (epochs_.empty() || epochs_.back() != joined->reply.epoch()) epochs_.push_back(joined->reply.epoch());
    if (const auto& after = joined->reply.state().more_after(); !after.empty()) {
      cluster::JoinAsked rest{.ask = ++asks_};
      rest.join.mutable_member()->set_name(joining_);
      rest.join.mutable_member()->set_epoch(joined->reply.epoch());
      rest.join.set_functions_after(after);
      answers.emplace_back(std::move(rest));
    }
  }
}

}  // namespace troupe::sim
