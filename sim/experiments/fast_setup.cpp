#include "sim/experiments/fast_setup.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.hpp"

namespace troupe::sim {

absl::StatusOr<FastTable> FastTable::Read(const std::string& data) {
  constexpr const char* kHeader = "item,model,sm_partition_pct,time_quota_pct,value,unit,section";
  FastTable table;
  table.path_ = data + "/papers/fast_profile_and_sched.csv";
  std::ifstream file(table.path_);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no table ", table.path_, " that can be read"));
  std::string text;
  if (!std::getline(file, text) || absl::StripAsciiWhitespace(text) != kHeader)
    return absl::InvalidArgumentError(absl::StrCat(table.path_, ":1: expected ", kHeader));
  for (std::size_t line = 2; std::getline(file, text); ++line) {
    const std::vector<std::string> cells = absl::StrSplit(std::string(absl::StripAsciiWhitespace(text)), ',');
    if (cells.size() != 7)
      return absl::InvalidArgumentError(absl::StrCat(table.path_, ":", line, ": expected seven cells"));
    table.rows_.push_back({cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]});
  }
  return table;
}

absl::StatusOr<double> FastTable::Value(const std::string& item, const std::string& model,
                                        const std::string& unit) const {
  for (const Row& row : rows_) {
    double value = 0;
    if (row.item == item && row.model == model && row.unit == unit && absl::SimpleAtod(row.value, &value) &&
        value > 0)
      return value;
  }
  return absl::NotFoundError(
      absl::StrCat(path_, ": expected a line '", item, "' of ", model, " with a number of ", unit));
}

absl::StatusOr<double> FastTable::Rate(const std::string& model, const std::string& sm_percent) const {
  for (const Row& row : rows_)
    if (row.sm_percent == sm_percent && row.model == model && row.unit == "req/s")
      return Value(row.item, model, row.unit);
  return absl::NotFoundError(absl::StrCat(path_, ": expected a line of ", model, " with the req/s on ",
                                          sm_percent, " % of the SMs"));
}

absl::StatusOr<RunCost> FastTable::CostOf(const std::string& model) const {
  TROUPE_ASSIGN_OR_RETURN(const double alone, Rate(model, "100"));
  TROUPE_ASSIGN_OR_RETURN(const double eight, Rate(model, "12"));
  const ShareLadder ladder = SharedGpuLadder();
  const double twelve = static_cast<double>(ladder.For(12).sms) / ladder.sms();
  return RunCost{.time = FromSeconds(1 / alone), .saturation = std::min(1.0, 8 * alone / eight * twelve)};
}

absl::StatusOr<FastTable::Pods> FastTable::PodsToPack(const std::string& model) const {
  for (const Row& row : rows_) {
    Pods pods;
    if (row.item == "pods to pack" && row.model == model && absl::SimpleAtoi(row.value, &pods.count) &&
        absl::SimpleAtoi(row.quota_percent, &pods.quota_percent) &&
        absl::SimpleAtoi(row.sm_percent, &pods.sm_percent))
      return pods;
  }
  return absl::NotFoundError(absl::StrCat(path_, ": expected a line 'pods to pack' of ", model,
                                          " with a number of pods, their SMs and their quota in percent"));
}

absl::StatusOr<std::vector<Figure>> RunFast(Sweep sweep, const std::vector<FastCase>& cases,
                                            const ExperimentOptions& options) {
  SweepValues values;
  for (const FastCase& one : cases) {
    sweep.cases.push_back({.key = one.key, .baseline = one.baseline, .setup = nullptr});
    if (options.go_on && !options.go_on(one.key)) break;
    for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) {
      TROUPE_ASSIGN_OR_RETURN(const Summary summary, one.run(seed));
      for (const auto& [name, value] : summary) values[one.key][name].push_back(value);
    }
  }
  return FiguresOf(sweep, values);
}

std::vector<std::string> SharingPresets(const ExperimentOptions& options,
                                        const std::vector<std::string>& all) {
  if (options.presets.empty()) return all;
  std::vector<std::string> wanted;
  std::ranges::copy_if(all, std::back_inserter(wanted), [&](const std::string& name) {
    return std::ranges::find(options.presets, name) != options.presets.end();
  });
  return wanted;
}

proto::GpuSharing ToProto(const Sharing& sharing) {
  proto::GpuSharing made;
  made.set_sm_partition(sharing.sm_partition);
  made.set_quota_request(sharing.quota_request);
  made.set_quota_limit(sharing.quota_limit);
  made.set_max_instances(sharing.instances);
  return made;
}

}  // namespace troupe::sim
