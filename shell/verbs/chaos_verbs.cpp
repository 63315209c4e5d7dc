// `chaos`: a plan of faults for a staging cluster.
#include <boost/json.hpp>

#include "absl/strings/ascii.h"
#include "base/status.hpp"
#include "shell/chaos_run.hpp"
#include "shell/exit_code.hpp"
#include "shell/inputs/files.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"

namespace troupe::shell {

namespace {

constexpr Bytes kMostPlanFile = MiB(1);

absl::StatusOr<ChaosPlan> ReadPlan(const std::string& path) {
  auto text = ReadFile(path, kMostPlanFile);
  if (!text.ok()) return AsUsageError(text.status());
  auto plan = ParseChaosPlan(*text);
  if (!plan.ok()) return UsageError(Cat(Printable(path), ": ", FromAbsl(plan.status().message())));
  return plan;
}

bool Confirmed(Session& session, std::size_t faults) {
  auto& console = session.console();
  console.err() << "Inject " << faults << " faults into the cluster at " << session.options().manager
                << "? [y/N] " << std::flush;
  std::string answer;
  if (!console.ReadLine(answer)) console.err() << '\n';
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

std::string TimeOr(const std::optional<Duration>& time, const char* otherwise) {
  return time ? FormatDuration(*time) : otherwise;
}

void PrintTable(Session& session, const std::vector<FaultResult>& results) {
  Table table({">at", "fault", ">noticed after", ">well after"});
  for (const auto& result : results) {
    const bool done = result.refused.empty();
    table.Add({FormatDuration(result.began), DescribeFault(result.planned.fault),
               done ? TimeOr(result.noticed, "-") : "not done", TimeOr(result.well, "-")});
  }
  session.out() << '\n' << table.Render(session.style());
}

void PrintResultsJson(Session& session, const std::vector<FaultResult>& results, const absl::Status& end) {
  const auto millis = [](const std::optional<Duration>& time) -> boost::json::value {
    if (!time) return nullptr;
    return std::chrono::duration<double, std::milli>(*time).count();
  };
  boost::json::array faults;
  for (const auto& result : results) {
    const auto& fault = result.planned.fault;
    faults.push_back(boost::json::object{{"at_ms", millis(result.began)},
                                         {"fault", FaultName(fault.kind())},
                                         {"member", fault.member()},
                                         {"gpu", fault.gpu()},
                                         {"for_ms", millis(Duration(fault.duration_ns()))},
                                         {"refused", result.refused},
                                         {"noticed_ms", millis(result.noticed)},
                                         {"well_ms", millis(result.well)}});
  }
  const boost::json::object all = {
      {"faults", std::move(faults)}, {"well", end.ok()}, {"problem", std::string(end.message())}};
  session.out() << boost::json::serialize(all) << '\n';
}

absl::Status ChaosRunVerb(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(auto plan, ReadPlan(arguments.Text("PLAN")));
  if (!arguments.Has("--yes") && !Confirmed(session, plan.faults.size()))
    return absl::AbortedError("not confirmed; nothing was injected (say y, or give --yes)");
  ChaosRun run(session, std::move(plan));
  const auto end = run.Go();
  if (run.results().empty()) return end;  // the cluster refused every fault
  session.json() ? PrintResultsJson(session, run.results(), end) : PrintTable(session, run.results());
  if (end.ok() && !session.json()) session.out() << "the cluster is well\n";
  return end;
}

}  // namespace

std::vector<Verb> ChaosVerbs() {
  return {
      {.group = "chaos",
       .name = "run",
       .summary = "Inject a plan's faults into a staging cluster, and watch it recover",
       .arguments =
           {{.name = "PLAN", .kind = Kind::kFile, .help = "a YAML file (docs/chaos.md)", .required = true},
            {.name = "--yes", .kind = Kind::kFlag, .help = "do not ask"}},
       .run = ChaosRunVerb},
  };
}

}  // namespace troupe::shell
