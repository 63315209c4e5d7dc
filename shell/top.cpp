#include "shell/top.hpp"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

const proto::GpuStatus* FindGpu(const TopSample* sample, const proto::GpuStatus& gpu) {
  if (sample == nullptr) return nullptr;
  for (const auto& other : sample->gpus.gpus())
    if (other.node() == gpu.node() && other.gpu().index() == gpu.gpu().index()) return &other;
  return nullptr;
}

const proto::NodeStatus* FindNode(const TopSample* sample, const proto::NodeStatus& node) {
  if (sample == nullptr) return nullptr;
  for (const auto& other : sample->status.members())
    if (other.member().name() == node.member().name() && other.member().epoch() == node.member().epoch())
      return &other;
  return nullptr;
}

std::string Rate(std::uint64_t now, std::uint64_t before, Duration between) {
  if (now < before || between <= Duration::zero()) return "-";
  return absl::StrFormat("%.3g", static_cast<double>(now - before) / ToSeconds(between));
}

bool SameWorker(const proto::GpuStatus& now, const proto::GpuStatus* before) {
  return before != nullptr && before->worker().generation() == now.worker().generation() &&
         before->worker().pid() == now.worker().pid();
}

std::string GpuPart(const TopSample& now, const TopSample* before, Duration between, const Style& style) {
  Table table({"GPU", "STATE", "MEMORY", ">USED", ">RESIDENT", ">QUEUED", ">RUN/S", ">SWAP/S", "BUSY", "",
               ">RESTARTS"});
  for (const auto& gpu : now.gpus.gpus()) {
    const auto* earlier = FindGpu(before, gpu);
    const auto& worker = gpu.worker();
    const std::uint64_t used = worker.memory_bytes() - std::min(worker.memory_bytes(), worker.free_bytes());
    const double full = worker.memory_bytes() > 0
                            ? static_cast<double>(used) / static_cast<double>(worker.memory_bytes())
                            : 0;
    const double busy = BusyShare(gpu, earlier, between);
    const bool same = SameWorker(gpu, earlier);
    table.Add({Cat(gpu.node(), "/", gpu.gpu().index()),
               Cell(gpu.gpu().state(), ColourOfGpu(gpu.gpu().state())), Bar(full, 10),
               FormatBytes(Bytes(used)), Cat(worker.resident_size()), Count(gpu.queued()),
               same ? Rate(worker.runs(), earlier->worker().runs(), between) : "-",
               same ? Rate(worker.swaps(), earlier->worker().swaps(), between) : "-",
               Bar(std::max(busy, 0.0), 10), Percent(busy), Count(gpu.restarts())});
  }
  return table.Render(style);
}

std::string NodePart(const TopSample& now, const TopSample* before, Duration between, const Style& style) {
  Table table({"NODE", "STATE", ">QUEUED", ">RUNNING", ">SERVED/S", ">SERVED", ">FAILED", ">RETRIED", ">HITS",
               ">BUSY"});
  for (const auto& node : now.status.members()) {
    if (node.member().kind() != proto::MEMBER_NODE) continue;
    const auto& load = node.load();
    const auto* earlier = FindNode(before, node);
    const double asked = static_cast<double>(load.hits()) + static_cast<double>(load.swaps());
    table.Add({node.member().name(), Cell(NameOf(node.member().state()), ColourOf(node.member().state())),
               Count(load.queued()), Count(load.running()),
               earlier != nullptr ? Rate(load.served(), earlier->load().served(), between) : "-",
               Count(load.served()),
               Cell(Count(load.failed()), load.failed() > 0 ? Colour::kRed : Colour::kPlain),
               Count(load.retried()), asked > 0 ? Percent(static_cast<double>(load.hits()) / asked) : "-",
               Percent(load.busy_share())});
  }
  return table.Render(style);
}

std::string FunctionPart(const TopSample& now, const Style& style) {
  // Functions on a GPU are the busy ones, and come first.
  std::vector<const proto::FunctionStatus*> order;
  for (const auto& function : now.functions.functions()) order.push_back(&function);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->resident_on_size() > b->resident_on_size();
  });
  Table table({"FUNCTION", ">VERSION", ">WEIGHTS", ">NODES", "RESIDENT ON"});
  for (const auto* function : order) {
    const auto& record = function->record();
    table.Add(
        {record.key().name(), record.key().version(), WeightsOf(record), Cat(function->adopted_by_size()),
         function->resident_on().empty() ? "-" : Shorten(absl::StrJoin(function->resident_on(), " "), 50)});
  }
  return table.Render(style);
}

// Colours take no columns, so a line is cut by what is seen of it.
std::string CutLine(std::string_view line, std::size_t columns) {
  std::string out;
  std::size_t seen = 0;
  bool escape = false;
  for (const char c : line) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (c == '\x1b') escape = true;
    if (escape || continues ? seen <= columns : seen++ < columns) out += c;
    if (escape && c == 'm') escape = false;
  }
  return out;
}

}  // namespace

double BusyShare(const proto::GpuStatus& now, const proto::GpuStatus* before, Duration between) {
  if (!SameWorker(now, before) || between <= Duration::zero()) return -1;
  const std::int64_t busy = now.worker().busy_ns() - before->worker().busy_ns();
  return busy < 0 ? -1 : std::min(1.0, static_cast<double>(busy) / static_cast<double>(between.count()));
}

std::string RenderTop(const TopSample& now, const TopSample* before, const Screen& screen,
                      const Style& style) {
  const Duration between = before == nullptr ? Duration::zero() : now.at - before->at;
  std::string all = ClusterSummary(now.status, style);
  Append(&all, "\n", GpuPart(now, before, between, style), "\n", NodePart(now, before, between, style));
  if (!now.functions.functions().empty()) Append(&all, "\n", FunctionPart(now, style));
  std::vector<std::string> lines = absl::StrSplit(all, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() > screen.rows) lines.resize(screen.rows);
  std::string out;
  for (const auto& line : lines) Append(&out, CutLine(line, screen.columns), "\n");
  return out;
}

}  // namespace troupe::shell
