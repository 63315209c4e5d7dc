#include "shell/profiles/profile_views.hpp"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.hpp"
#include "proto/precision.hpp"
#include "shell/profiles/profile_panels.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

std::string Milliseconds(std::int64_t ns) {
  return ns > 0 ? absl::StrFormat("%.2f ms", static_cast<double>(ns) / 1e6) : "-";
}

std::string NoteOf(const proto::ProfileRow& row) {
  if (row.state() == proto::PROFILE_ROW_FAILED) return Cat("failed: ", row.reason());
  if (row.state() == proto::PROFILE_ROW_INTERPOLATED) return "interpolated";
  return row.beside_load() ? "measured beside other load" : "";
}

std::string WhereUsed(const proto::FunctionProfile& profile, const proto::FunctionRecord& function,
                      const proto::AdminReply& gpus) {
  if (profile.model_digest() != function.model_digest()) return "not used: it is of another model";
  if (profile.precision() != function.precision())
    return Cat("not used: the function computes in ", std::string(proto::Name(function.precision())));
  std::vector<std::string> of_kind;
  for (const auto& gpu : gpus.gpus())
    if (gpu.gpu().kind() == profile.gpu_kind())
      of_kind.push_back(Cat(Printable(gpu.node()), "/", gpu.gpu().index()));
  if (of_kind.empty()) return "not used: no GPU of the cluster is of this kind";
  return Cat("used on ", absl::StrJoin(of_kind, ", "));
}

}  // namespace

Table ProfileTable(const proto::FunctionProfile& profile) {
  Table table({">BATCH", ">SM SHARE", ">QUOTA", ">REQUESTS/S", ">RUN", ">P50", ">P90", ">P99", ">MEMORY",
               ">RUNS", "NOTE"});
  for (const auto& row : profile.rows()) {
    const bool failed = row.state() == proto::PROFILE_ROW_FAILED;
    const auto colour = failed                                           ? Colour::kRed
                        : row.state() == proto::PROFILE_ROW_INTERPOLATED ? Colour::kDim
                                                                         : Colour::kPlain;
    table.Add({Cat(row.batch()), Cat(row.sm_partition(), " %"), Cat(row.quota_limit(), " %"),
               Cell(failed ? "-" : absl::StrFormat("%.2f", row.throughput()), colour),
               Milliseconds(row.run_ns()), Milliseconds(row.p50_ns()), Milliseconds(row.p90_ns()),
               Milliseconds(row.p99_ns()), row.run_bytes() > 0 ? FormatBytes(Bytes(row.run_bytes())) : "-",
               row.runs() > 0 ? Cat(row.runs()) : "-", Cell(NoteOf(row), colour)});
  }
  return table;
}

std::string ProfileHead(const proto::FunctionProfile& profile, const proto::FunctionRecord& function,
                        const proto::AdminReply& gpus) {
  return Cat(Printable(profile.gpu_kind()), ", ", std::string(proto::Name(profile.precision())),
             profile.imported() ? ", imported " : ", changed ", FormatUnixTime(profile.unix_ns()), "; ",
             WhereUsed(profile, function, gpus));
}

std::string SaturationLines(const proto::FunctionProfile& profile) {
  std::string out;
  for (const auto& panel : PanelsOf(profile))
    if (panel.Saturation() > 0)
      Append(&out, "batch ", panel.batch, ": no gain above ", panel.Saturation(), " % of the SMs\n");
  return out;
}

std::string ExperimentLine(const proto::ProfilingExperiment& experiment) {
  const auto state =
      absl::AsciiStrToLower(proto::ExperimentState_Name(experiment.state()).substr(sizeof("EXPERIMENT")));
  auto line = Cat(experiment.method() == proto::PROFILING_GRID ? "grid" : "bisect", " on ",
                  Printable(experiment.node()), "/", experiment.gpu(), ": ", state, ", ",
                  experiment.rows_size(), experiment.rows_size() == 1 ? " trial" : " trials");
  if (experiment.state() == proto::EXPERIMENT_RUNNING) {
    Append(&line, ", at most ", experiment.trials_left(), " to go");
    if (experiment.left_ns() > 0)
      Append(&line, ", some ", absl::StrFormat("%.0f", static_cast<double>(experiment.left_ns()) / 1e9),
             " s left");
  }
  if (!experiment.message().empty()) Append(&line, ": ", Printable(experiment.message()));
  return line;
}

}  // namespace troupe::shell
