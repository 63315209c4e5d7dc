#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/slo_counts.hpp"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

constexpr int kBarCells = 30;
constexpr double kNearlyUsedUp = 0.25;  // of the budget that is left

Cell BudgetCell(const proto::FunctionSlo& slo, const proto::SloCounts& counts) {
  if (slo.deadline_ns() <= 0) return {"-", Colour::kDim};
  const double left = proto::BudgetLeft(counts, slo.percentile());
  const Colour colour = left < 0 ? Colour::kRed : left < kNearlyUsedUp ? Colour::kYellow : Colour::kGreen;
  return {absl::StrFormat("%.0f %%", 100 * left), colour};
}

// Below zero there are requests to spare, not required; BUDGET LEFT says how much.
std::string RequiredText(const proto::FunctionSlo& slo, const proto::SloCounts& counts) {
  if (slo.deadline_ns() <= 0) return "-";
  return absl::StrFormat("%.0f", std::max(0.0, std::ceil(proto::RequiredRequests(counts, slo.percentile()))));
}

struct Part {
  std::string name;
  Duration took{};
  std::string remark;
};

std::string SwapRemark(const proto::RequestTimeline& request) {
  const auto& story = request.story();
  if (story.source().empty()) return "";
  if (story.swapped_bytes() == 0) return Cat("the model was ", Printable(story.source()));
  return Cat(FormatBytes(Bytes(story.swapped_bytes())), " of weights, from: ", Printable(story.source()));
}

std::string RunRemark(const proto::RequestTimeline& request) {
  const auto& beside = request.story().beside();
  std::vector<std::string> remarks;
  if (request.story().batch_size() > 1)
    remarks.push_back(Cat("its run answered ", request.story().batch_size(), " requests"));
  if (!beside.empty())
    remarks.push_back(Cat("its GPU had besides: ", Printable(absl::StrJoin(beside, ", "))));
  return absl::StrJoin(remarks, "; ");
}

std::vector<Part> PartsOf(const proto::RequestTimeline& request) {
  const auto& times = request.times();
  const auto& story = request.story();
  const std::int64_t known =
      times.router_queue_ns() + times.node_queue_ns() + times.swap_ns() + times.compute_ns();
  return {
      {"queue of the gateway", Duration(times.router_queue_ns()), ""},
      {"queue of the node", Duration(times.node_queue_ns()),
       story.waiting() == 0 ? "" : Cat(story.waiting(), " others waited when it came")},
      {"swap", Duration(times.swap_ns()), SwapRemark(request)},
      {"run", Duration(times.compute_ns()), RunRemark(request)},
      {"network, copies, pauses of its quota", Duration(std::max<std::int64_t>(0, request.took_ns() - known)),
       story.fetched_inputs() ? "its inputs came from another host" : ""}};
}

std::int64_t BeganAt(const proto::RequestTimeline& request) {
  return request.ended_unix_ns() - request.took_ns();
}

std::string Verdict(const proto::RequestTimeline& request) {
  if (request.code() != 0) return Cat("failed: ", Printable(request.message()));
  if (request.deadline_ns() <= 0) return "no deadline";
  const Duration spare(request.deadline_ns() - request.took_ns());
  return spare >= Duration::zero() ? Cat("in time, ", FormatDuration(spare), " to spare")
                                   : Cat("late by ", FormatDuration(-spare));
}

std::string PlaceOf(const proto::RequestTimeline& request) {
  if (request.node().empty()) return Cat("gateway ", Printable(request.gateway()), ", no node took it");
  return Cat("gateway ", Printable(request.gateway()), ", node ", Printable(request.node()), ", GPU ",
             request.gpu(), request.attempts() > 1 ? Cat(", ", request.attempts(), " attempts") : "");
}

// The bar of a request among others, which began at `begin` and ended at `end`.
std::string BarOf(const proto::RequestTimeline& request, std::int64_t begin, std::int64_t end) {
  const double scale = kBarCells / static_cast<double>(std::max<std::int64_t>(1, end - begin));
  const auto cell = [&](std::int64_t at) { return std::lround(static_cast<double>(at - begin) * scale); };
  const auto until = std::clamp<long>(cell(request.ended_unix_ns()), 1, kBarCells);
  const auto from = std::clamp<long>(cell(BeganAt(request)), 0, until - 1);
  return Cat(std::string(static_cast<std::size_t>(from), ' '),
             std::string(static_cast<std::size_t>(until - from), '#'));
}

}  // namespace

Table SloTable(const proto::AdminReply& reply, bool since_start) {
  Table table({"FUNCTION", ">VERSION", "OBJECTIVE", ">REQUESTS", ">ATTAINED", ">BUDGET LEFT", ">REQUIRED",
               ">QUEUE", ">SWAP", ">RUN", ">NETWORK", ">FAILED"});
  for (const auto& slo : reply.slos()) {
    const auto& counts = since_start ? slo.total() : slo.hour();
    table.Add({slo.function().name(), slo.function().version(),
               DescribeObjective(slo.deadline_ns(), slo.percentile()), Cat(proto::EndedCount(counts)),
               absl::StrFormat("%.2f %%", 100 * proto::Attained(counts)), BudgetCell(slo, counts),
               RequiredText(slo, counts), Cat(counts.late_queue()), Cat(counts.late_swap()),
               Cat(counts.late_run()), Cat(counts.late_network()), Cat(counts.failed())});
  }
  return table;
}

std::string AlphaLines(const proto::AdminReply& reply) {
  std::string out;
  for (const auto& one : reply.alphas())
    Append(&out, "alpha      ", one.alpha(), " at ", Printable(one.member()), "\n");
  return out;
}

std::string RequestDetails(const proto::RequestTimeline& request, const Style& style) {
  std::string out =
      Cat(style.Paint(DescribeKey(request.function()), Colour::kBold), "  ",
          FormatDuration(Duration(request.took_ns())), ", ", Verdict(request), "\n",
          request.id().empty() ? "" : Cat("id         ", Printable(request.id()), "\n"), "ended      ",
          FormatUnixTime(request.ended_unix_ns()), "\nat         ", PlaceOf(request), "\n");
  const auto parts = PartsOf(request);
  const double whole = static_cast<double>(std::max<std::int64_t>(1, request.took_ns()));
  for (const auto& part : parts) {
    const double share = std::clamp(static_cast<double>(part.took.count()) / whole, 0.0, 1.0);
    const auto cells = static_cast<std::size_t>(std::lround(share * kBarCells));
    Append(&out,
           absl::StrFormat("  %-21s %10s  %-*s", part.name, FormatDuration(part.took), kBarCells,
                           std::string(cells, '#')),
           part.remark.empty() ? "" : Cat("  ", part.remark), "\n");
  }
  return out;
}

std::string StepsChart(const proto::AdminReply& reply, std::string_view run, const Style& style) {
  const auto& requests = reply.timelines();
  const auto of_a_step = [&](const auto& request) { return request.id().size() > run.size(); };
  if (run.empty() || std::ranges::none_of(requests, of_a_step)) return "";
  const auto begin = BeganAt(*std::ranges::min_element(requests, {}, BeganAt));
  const auto end =
      std::ranges::max_element(requests, {}, &proto::RequestTimeline::ended_unix_ns)->ended_unix_ns();
  std::string out = Cat(style.Paint(Cat("run ", run), Colour::kBold), "  ", requests.size(),
                        requests.size() == 1 ? " request in " : " requests in ",
                        FormatDuration(Duration(end - begin)), "\n");
  for (const auto& request : requests) {
    const auto step = of_a_step(request) ? request.id().substr(run.size() + 1) : request.id();
    Append(&out,
           absl::StrFormat("  %-21s %10s  |%-*s|  +%s\n", Printable(step),
                           FormatDuration(Duration(request.took_ns())), kBarCells, BarOf(request, begin, end),
                           FormatDuration(Duration(BeganAt(request) - begin))));
  }
  return out + "\n";
}

}  // namespace troupe::shell
