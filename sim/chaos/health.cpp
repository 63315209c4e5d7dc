#include "sim/chaos/health.hpp"

#include <map>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "sim/chaos/run_log.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kCommit = milliseconds(100);  // longer than any commit of a disk that is well
constexpr Duration kCopy = milliseconds(500);    // longer than any copy of a model

std::string WrongWith(const proto::MemberRecord& member) {
  if (member.state() != proto::MEMBER_ALIVE)
    return absl::StrCat(member.name(), " is ", proto::MemberState_Name(member.state()));
  for (const auto& gpu : member.gpus())
    if (gpu.state() != "ready")
      return absl::StrCat(member.name(), " GPU ", gpu.index(), " is ", gpu.state(), " ", gpu.problem());
  return "";
}

}  // namespace

std::vector<std::string> Health::Look(bool all) {
  auto heard = std::make_shared<std::optional<AdminResult>>();
  proto::AdminRequest ask;
  ask.mutable_cluster_status();
  cluster_.operators().Admin(0, ask, seconds(2), [heard](const AdminResult& result) { *heard = result; });
  cluster_.agenda().RunUntil([&] { return heard->has_value(); }, seconds(3));
  if (!heard->has_value() || !(*heard)->reply) return {"the manager does not answer"};
  std::map<std::string, std::string> states;
  for (const auto& status : (*heard)->reply->status().members())
    states[status.member().name()] = WrongWith(status.member());
  std::vector<std::string> ill;
  auto names = cluster_.shape().NodeNames();
  for (const auto& gateway : cluster_.shape().GatewayNames()) names.push_back(gateway);
  for (const auto& name : names) {
    const auto it = states.find(name);
    if (it == states.end())
      ill.push_back(absl::StrCat(name, " is not a member"));
    else if (!it->second.empty())
      ill.push_back(it->second);
  }
  LookAtRuns(all, ill);
  return ill;
}

void Health::LookAtRuns(bool all, std::vector<std::string>& ill) {
  const auto log = OpenRunsOf(cluster_.disk(), all ? nullptr : &cluster_.store_watch());
  if (!log.ok()) {
    ill.emplace_back(log.status().message());
    return;
  }
  for (const auto& run : *log)
    ill.push_back(absl::StrCat("run ", run.start().run(), " of ", run.gateway(), " is under way, with ",
                               run.steps_size(), " steps behind it"));
}

std::vector<std::string> Health::LookInside() {
  std::vector<std::string> ill;
  LookAtGateways(ill);
  LookAtNodes(ill);
  // Usage is stored every second for as long as the nodes have models, and each commit ends soon.
  if (!cluster_.agenda().RunUntil([this] { return cluster_.disk().waiting() == 0; }, kCommit))
    ill.emplace_back("commits wait at the disk");
  return ill;
}

void Health::LookAtGateways(std::vector<std::string>& ill) {
  for (std::size_t i = 0; i < cluster_.shape().gateways; ++i) {
    auto report = std::make_shared<std::optional<proto::MemberReport>>();
    cluster_.world().system().spawn([router = cluster_.world().gateway(i).router,
                                     report](caf::event_based_actor* self) {
      self->request(router, caf::infinite, proto::DescribeMember()).then([report](proto::MemberReport& got) {
        *report = std::move(got);
      });
    });
    cluster_.world().Settle();
    const auto name = absl::StrCat("gateway-", i + 1);
    if (!report->has_value()) {
      ill.push_back(absl::StrCat("the router of ", name, " does not answer"));
    } else if ((*report)->load().queued() + (*report)->load().running() > 0) {
      ill.push_back(absl::StrCat("at ", name, " ", (*report)->load().queued(), " requests wait and ",
                                 (*report)->load().running(), " are with nodes, and no client asks"));
    }
  }
}

void Health::LookAtNodes(std::vector<std::string>& ill) {
  for (const auto& name : cluster_.shape().NodeNames()) {
    const auto node = cluster_.world().Describe(name);
    if (node.load().queued() + node.load().running() > 0)
      ill.push_back(absl::StrCat("at ", name, " ", node.load().queued(), " requests wait and ",
                                 node.load().running(), " run, and no client asks"));
    for (const auto& gpu : node.gpus())
      if (gpu.promised_bytes() > 0)
        ill.push_back(absl::StrCat("at ", name, " GPU ", gpu.gpu().index(), " ", gpu.promised_bytes(),
                                   " bytes are promised to runs that are over"));
  }
  // A node may bring a model before it is asked for.
  std::vector<std::string> copies;
  cluster_.agenda().RunUntil([&] { return (copies = Copies()).empty(); }, kCopy);
  for (auto& copy : copies) ill.push_back(std::move(copy));
}

std::vector<std::string> Health::Copies() {
  std::vector<std::string> copies;
  for (const auto& name : cluster_.shape().NodeNames()) {
    for (std::uint32_t gpu = 0; gpu < cluster_.shape().gpus; ++gpu) {
      for (const auto& worker : cluster_.nodes().WorkersOf(name, gpu)) {
        const auto& life = worker->life;
        if (!life.loading.empty() || !life.pins.empty())
          copies.push_back(absl::StrCat("at ", name, " GPU ", gpu, " ", life.loading.size(),
                                        " models come and ", life.pins.size(), " are pinned, for ",
                                        FormatDuration(kCopy)));
      }
    }
  }
  return copies;
}

}  // namespace troupe::sim
