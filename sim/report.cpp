#include "sim/report.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace troupe::sim {

namespace {

const Figure* FindFigure(const std::vector<Figure>& figures, const std::string& name) {
  const auto it = std::ranges::find(figures, name, &Figure::name);
  return it == figures.end() ? nullptr : &*it;
}

std::string Number(double value) {
  return absl::StrFormat("%.4g", value);
}

}  // namespace

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void PrintFigures(std::ostream& out, const std::vector<Figure>& figures) {
  out << absl::StrFormat("%-44s %9s %9s %9s %9s %9s  %-6s %s\n", "figure", "paper", "baseline", "ours", "min",
                         "max", "unit", "of the baseline");
  for (const Figure& figure : figures) {
    if (figure.values.empty()) continue;
    const double mean = Mean(figure.values);
    const Figure* baseline = FindFigure(figures, figure.baseline);
    const double base = baseline == nullptr ? 0 : Mean(baseline->values);
    out << absl::StrFormat("%-44s %9s %9s %9s %9s %9s  %-6s %s\n", figure.name,
                           figure.paper ? Number(*figure.paper) : "", baseline == nullptr ? "" : Number(base),
                           Number(mean), Number(*std::ranges::min_element(figure.values)),
                           Number(*std::ranges::max_element(figure.values)), figure.unit,
                           base == 0 ? "" : absl::StrFormat("%.2f", mean / base));
  }
}

absl::Status WriteFigures(const std::string& path, const std::vector<Figure>& figures,
                          const std::string& note) {
  boost::json::array list;
  for (const Figure& figure : figures) {
    if (figure.values.empty()) continue;
    boost::json::object item;
    item["name"] = figure.name;
    item["value"] = Mean(figure.values);
    item["unit"] = figure.unit;
    item["runs"] = figure.values.size();
    item["min"] = *std::ranges::min_element(figure.values);
    item["max"] = *std::ranges::max_element(figure.values);
    if (figure.paper) item["paper"] = *figure.paper;
    if (const Figure* baseline = FindFigure(figures, figure.baseline); baseline != nullptr) {
      item["baseline"] = figure.baseline;
      item["baseline_value"] = Mean(baseline->values);
      if (Mean(baseline->values) != 0) item["ratio"] = Mean(figure.values) / Mean(baseline->values);
    }
    list.push_back(std::move(item));
  }
  boost::json::object root;
  root["note"] = note;
  root["figures"] = std::move(list);
  std::ofstream file(path, std::ios::trunc);
  file << boost::json::serialize(root) << "\n";
  file.close();
  if (!file)
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": is its folder there, and yours?"));
  return absl::OkStatus();
}

void PrintOutcome(std::ostream& out, const SimulationSetup& setup, const std::string& preset,
                  const Outcome& outcome) {
  const ClusterSpec& cluster = setup.cluster;
  out << absl::StrFormat("preset %s, seed %d: %d node%s of %d GPUs of %s, %d functions of %d models\n",
                         preset, setup.seed, cluster.nodes, cluster.nodes == 1 ? "" : "s", cluster.gpus,
                         FormatBytes(cluster.gpu_memory), setup.workload.functions.size(),
                         cluster.models.size());
  if (outcome.ended_early)
    out << absl::StrFormat("ended early, after %s of %s\n", FormatDuration(outcome.length),
                           FormatDuration(setup.workload.length));
  out << absl::StrFormat(
      "requests: %d arrived = %d served + %d rejected + %d expired + %d cancelled + %d failed + %d "
      "unanswered\n",
      outcome.arrived, outcome.served, outcome.rejected, outcome.expired, outcome.cancelled, outcome.failed,
      outcome.waiting);
  out << absl::StrFormat("latency: mean %s, p50 %s, p98 %s, p99 %s\n", FormatDuration(outcome.MeanLatency()),
                         FormatDuration(outcome.LatencyAt(50)), FormatDuration(outcome.LatencyAt(98)),
                         FormatDuration(outcome.LatencyAt(99)));
  out << absl::StrFormat(
      "GPUs: %.1f %% of the time in runs, %.1f %% with a load on its way; "
      "%.1f %% of the requests missed their model; %d loads, %d of a model that another GPU had\n",
      100 * outcome.computing, 100 * outcome.loading, 100 * outcome.MissRatio(), outcome.swaps,
      outcome.false_misses);
  std::uint64_t in_time = 0;
  for (const Answer& answer : outcome.answers) in_time += answer.in_time ? 1 : 0;
  if (std::ranges::any_of(cluster.models, [](const auto& model) { return model.deadline > Duration(); }))
    out << absl::StrFormat("deadlines: %d of %d in time\n", in_time, outcome.arrived);
  if (setup.sandbox)
    out << absl::StrFormat(
        "sandbox: %s\nruntimes: %d started since the first request; %s of each GPU in use\n",
        setup.sandbox->Describe(), outcome.starts, FormatBytes(outcome.gpu_memory));
  if (outcome.connections_lost > 0)
    out << absl::StrFormat("network: %d connections lost\n", outcome.connections_lost);
  out << absl::StrFormat("trace hash: %016x\n", outcome.trace_hash);
}

}  // namespace troupe::sim
