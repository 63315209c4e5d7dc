#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

std::string KindName(proto::MemberKind kind) {
  return kind == proto::MEMBER_NODE ? "node" : kind == proto::MEMBER_GATEWAY ? "gateway" : "unknown";
}

std::string Or(std::string_view text, std::string_view otherwise = "-") {
  return std::string(text.empty() ? otherwise : text);
}

std::string HitRatio(const proto::NodeLoad& load) {
  const double runs = static_cast<double>(load.hits()) + static_cast<double>(load.swaps());
  return runs > 0 ? Percent(static_cast<double>(load.hits()) / runs) : "-";
}

std::string DescribeGpus(const proto::MemberRecord& member) {
  std::uint64_t memory = 0;
  int ready = 0;
  for (const auto& gpu : member.gpus()) {
    memory += gpu.memory_bytes();
    ready += gpu.state() == "ready" ? 1 : 0;
  }
  const bool gone = member.state() == proto::MEMBER_DEAD || member.state() == proto::MEMBER_LEFT;
  if (gone || member.gpus().empty()) return "-";
  return Cat(ready, "/", member.gpus_size(), " ready, ", FormatBytes(Bytes(memory)));
}

}  // namespace

std::string NameOf(proto::MemberState state) {
  if (!proto::MemberState_IsValid(state)) return "unknown";
  return absl::AsciiStrToLower(absl::StripPrefix(proto::MemberState_Name(state), "MEMBER_"));
}

Colour ColourOf(proto::MemberState state) {
  switch (state) {
    case proto::MEMBER_ALIVE:
      return Colour::kGreen;
    case proto::MEMBER_DEAD:
      return Colour::kRed;
    case proto::MEMBER_LEFT:
      return Colour::kDim;
    default:
      return Colour::kYellow;
  }
}

Colour ColourOfGpu(const std::string& state) {
  if (state == "ready") return Colour::kGreen;
  return state == "unfit" || state == "hung" ? Colour::kRed : Colour::kYellow;
}

std::string ClusterSummary(const proto::ClusterStatusReply& status, const Style& style) {
  int nodes = 0, gateways = 0, away = 0, gpus = 0, ready = 0;
  std::uint64_t queued = 0, running = 0, served = 0;
  for (const auto& member : status.members()) {
    const auto& record = member.member();
    const bool there = record.state() == proto::MEMBER_ALIVE || record.state() == proto::MEMBER_DRAINING;
    away += there || record.state() == proto::MEMBER_LEFT ? 0 : 1;
    if (!there) continue;
    const bool is_node = record.kind() == proto::MEMBER_NODE;
    (is_node ? nodes : gateways) += 1;
    gpus += record.gpus_size();
    for (const auto& gpu : record.gpus()) ready += gpu.state() == "ready" ? 1 : 0;
    // A request waits at a gateway or at a node, but what a node runs its gateway has sent, and what a node
    // served its gateway answered: these are counted once.
    queued += member.load().queued();
    running += is_node ? member.load().running() : 0;
    served += is_node ? 0 : member.load().served();
  }
  std::string out = Cat("cluster ", style.Paint(Or(Printable(status.cluster())), Colour::kBold),
                        ", revision ", status.revision(), "\n");
  Append(&out, "nodes ", nodes, "  gateways ", gateways, "  GPUs ", ready, " of ", gpus, " ready");
  if (away > 0)
    Append(&out, "  ", style.Paint(Cat(away, away == 1 ? " member away" : " members away"), Colour::kRed));
  Append(&out, "\nfunctions ", status.functions(), "  workflows ", status.workflows(), "  runs ",
         status.runs(), "\nqueued ", Count(queued), "  running ", Count(running), "  served ", Count(served),
         "\n");
  return out;
}

Table MemberTable(const proto::ClusterStatusReply& status) {
  Table table({"MEMBER", "KIND", "STATE", "ADDRESS", "HTTP", "OPERATIONS", ">SILENT"});
  for (const auto& entry : status.members()) {
    const auto& member = entry.member();
    table.Add({member.name(), KindName(member.kind()), Cell(NameOf(member.state()), ColourOf(member.state())),
               Or(member.address()), Or(member.http()), Or(member.operations()),
               FormatDuration(Duration(entry.silent_ns()))});
  }
  return table;
}

Table NodeTable(const proto::ClusterStatusReply& status) {
  Table table({"NODE", "STATE", "GPUS", ">QUEUED", ">RUNNING", ">SERVED", ">FAILED", ">RETRIED", ">SWAPS",
               ">HITS", ">BUSY", "ADDRESS"});
  for (const auto& entry : status.members()) {
    const auto& member = entry.member();
    const auto& load = entry.load();
    table.Add({member.name(), Cell(NameOf(member.state()), ColourOf(member.state())), DescribeGpus(member),
               Count(load.queued()), Count(load.running()), Count(load.served()),
               Cell(Count(load.failed()), load.failed() > 0 ? Colour::kRed : Colour::kPlain),
               Count(load.retried()), Count(load.swaps()), HitRatio(load), Percent(load.busy_share()),
               Or(member.address())});
  }
  return table;
}

Table GpuTable(const proto::AdminReply& reply) {
  Table table({"GPU", "DEVICE", "STATE", ">USED", ">MEMORY", ">RESIDENT", ">QUEUED", ">RUNS", ">SWAPS",
               ">BUSY", ">RESTARTS", ">PID"});
  for (const auto& gpu : reply.gpus()) {
    const auto& worker = gpu.worker();
    const std::uint64_t memory = worker.memory_bytes() > 0 ? worker.memory_bytes() : gpu.gpu().memory_bytes();
    const std::uint64_t used =
        memory - std::min(memory, worker.memory_bytes() > 0 ? worker.free_bytes() : memory);
    table.Add({Cat(gpu.node(), "/", gpu.gpu().index()), Or(gpu.gpu().device(), worker.device()),
               Cell(Or(gpu.gpu().state(), "unknown"), ColourOfGpu(gpu.gpu().state())),
               FormatBytes(Bytes(used)), FormatBytes(Bytes(memory)),
               Count(static_cast<std::uint64_t>(worker.resident_size())), Count(gpu.queued()),
               Count(worker.runs()), Count(worker.swaps()), Percent(gpu.busy_share()), Count(gpu.restarts()),
               worker.pid() > 0 ? Cat(worker.pid()) : "-"});
  }
  return table;
}

std::string EventLine(const proto::Event& event, const Style& style) {
  return Cat(style.Paint(FormatUnixTime(event.unix_ns()), Colour::kDim), "  ",
             Or(Printable(event.member()), "cluster"), "  ",
             style.Paint(Printable(event.kind()), Colour::kCyan), "  ", Printable(event.message()), "\n");
}

}  // namespace troupe::shell
