// `profile`: how fast functions are on shares of a GPU.
#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.hpp"
#include "shell/exit_code.hpp"
#include "shell/inputs/files.hpp"
#include "shell/profiles/heat_map.hpp"
#include "shell/profiles/profile_file.hpp"
#include "shell/profiles/profile_views.hpp"
#include "shell/progress.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

constexpr Duration kLookEvery = std::chrono::seconds(1);
using Numbers = google::protobuf::RepeatedField<std::uint32_t>;

proto::FunctionKey ProfiledKey(const Arguments& arguments) {
  proto::FunctionKey key;
  key.set_name(arguments.Text("FUNCTION"));
  key.set_version(arguments.Text("--version"));
  return key;
}

// "12", "12,24,50", or (`doubling`) "1..32": 1, 2, 4 and so on.
absl::Status ReadNumbers(const Arguments& arguments, const std::string& name, std::uint32_t most,
                         bool doubling, Numbers& values) {
  if (!arguments.Has(name)) return absl::OkStatus();
  const auto& text = arguments.Text(name);
  const auto wrong = [&] {
    return UsageError(Cat(name, " is '", Printable(text), "'; it has whole numbers from 1 to ", most,
                          doubling ? ", like 1,4 or 1..32" : ", like 12,24,50"));
  };
  const auto dots = doubling ? text.find("..") : std::string::npos;
  if (dots != std::string::npos) {
    std::uint32_t first = 0, last = 0;
    if (!absl::SimpleAtoi(text.substr(0, dots), &first) || !absl::SimpleAtoi(text.substr(dots + 2), &last) ||
        first < 1 || last < first || last > most)
      return wrong();
    for (std::uint32_t value = first; value <= last; value *= 2) values.Add(value);
    return absl::OkStatus();
  }
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    std::uint32_t value = 0;
    if (!absl::SimpleAtoi(word, &value) || value < 1 || value > most) return wrong();
    values.Add(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<proto::ProfileFunction> WishOf(const Arguments& arguments) {
  proto::ProfileFunction wish;
  *wish.mutable_key() = ProfiledKey(arguments);
  if (arguments.Has("--grid") && arguments.Has("--bisect"))
    return UsageError("--grid measures every point and --bisect as few as it can: give one of them");
  wish.set_method(arguments.Has("--grid") ? proto::PROFILING_GRID : proto::PROFILING_BISECT);
  if (GpuName gpu; arguments.Has("--on") && ParseGpuName(arguments.Text("--on"), gpu)) {
    wish.set_node(gpu.node);
    wish.set_gpu(gpu.index);
  }
  auto& grid = *wish.mutable_grid();
  TROUPE_RETURN_IF_ERROR(ReadNumbers(arguments, "--batch", 32, true, *grid.mutable_batches()));
  TROUPE_RETURN_IF_ERROR(ReadNumbers(arguments, "--shares", 100, false, *grid.mutable_sm_partitions()));
  TROUPE_RETURN_IF_ERROR(ReadNumbers(arguments, "--quotas", 100, false, *grid.mutable_quota_limits()));
  if (arguments.Has("--trial-limit"))
    wish.set_trial_limit_ns(arguments.DurationOr("--trial-limit", Duration::zero()).count());
  return wish;
}

absl::StatusOr<proto::AdminReply> AskShow(Session& session, const proto::FunctionKey& key) {
  proto::AdminRequest request;
  *request.mutable_show_profile()->mutable_key() = key;
  return session.Ask(request);
}

void PrintProfiles(Session& session, const proto::AdminReply& reply) {
  proto::AdminRequest request;
  request.mutable_list_gpus();
  // Without an answer no GPU is named.
  const auto gpus = session.Ask(request).value_or(proto::AdminReply());
  const auto& record = reply.functions().empty() ? proto::FunctionRecord() : reply.functions(0).record();
  for (const auto& experiment : reply.experiments()) session.out() << ExperimentLine(experiment) << '\n';
  for (const auto& profile : reply.profiles()) {
    session.out() << '\n'
                  << ProfileHead(profile, record, gpus) << '\n'
                  << ProfileTable(profile).Render(session.style()) << SaturationLines(profile);
  }
  if (!reply.message().empty()) session.out() << Printable(reply.message()) << '\n';
  if (reply.profiles().empty() && reply.experiments().empty())
    session.out() << DescribeKey(record.key()) << " has no profile; measure one with: troupe profile "
                  << Printable(record.key().name()) << '\n';
}

std::string GoesOn(const proto::FunctionKey& key) {
  const auto name = Printable(key.name());
  return Cat("see 'troupe profile show ", name, "'; 'troupe profile cancel ", name, "' ends it");
}

// Until the experiment has ended; a look that fails is made again, for the experiment goes on without it.
absl::StatusOr<proto::AdminReply> Follow(Session& session, const proto::FunctionKey& key,
                                         std::uint64_t number) {
  Progress progress(session.console(), "measuring", 0);
  for (;;) {
    if (session.console().Sleep(kLookEvery) != Console::Wake::kTimeout)
      return absl::CancelledError(Cat("the experiment goes on: ", GoesOn(key)));
    const auto reply = AskShow(session, key);
    if (ExitCodeOf(reply.status()) == ExitCode::kInterrupted || absl::IsNotFound(reply.status()))
      return reply.status();
    if (!reply.ok()) continue;
    if (reply->experiments().empty() || reply->experiments(0).number() != number ||
        reply->experiments(0).state() != proto::EXPERIMENT_RUNNING)
      return *reply;
    progress.Say(ExperimentLine(reply->experiments(0)));
    progress.Update(0);
  }
}

absl::Status ProfileRun(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  TROUPE_ASSIGN_OR_RETURN(*request.mutable_profile_function(), WishOf(arguments));
  TROUPE_ASSIGN_OR_RETURN(auto reply, session.Ask(request, "beginning"));
  if (reply.experiments().empty()) return absl::InternalError("the manager began no experiment");
  const auto begun = reply.experiments(0);
  if (!arguments.Has("--detach")) {
    TROUPE_ASSIGN_OR_RETURN(reply, Follow(session, begun.key(), begun.number()));
  }
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  if (arguments.Has("--detach")) {
    session.out() << ExperimentLine(begun) << "; " << GoesOn(begun.key()) << '\n';
    return absl::OkStatus();
  }
  PrintProfiles(session, reply);
  if (!reply.experiments().empty() && reply.experiments(0).state() == proto::EXPERIMENT_FAILED)
    return absl::FailedPreconditionError("the experiment could not go on");
  return absl::OkStatus();
}

// The profile that a file is made of: the only one, or the one of the kind that was named.
absl::StatusOr<proto::FunctionProfile> ChooseProfile(const proto::AdminReply& reply,
                                                     const std::string& kind) {
  std::vector<const proto::FunctionProfile*> fitting;
  for (const auto& profile : reply.profiles())
    if (kind.empty() || profile.gpu_kind() == kind) fitting.push_back(&profile);
  if (fitting.size() == 1) return *fitting.front();
  if (fitting.empty()) return absl::NotFoundError("there is no such profile");
  return UsageError(Cat("the function has ", fitting.size(), " profiles; say of which GPUs with --kind"));
}

absl::Status ProfileShow(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(auto reply, AskShow(session, ProfiledKey(arguments)));
  const auto& kind = arguments.Text("--kind");
  if (arguments.Has("--svg")) {
    TROUPE_ASSIGN_OR_RETURN(const auto profile, ChooseProfile(reply, kind));
    TROUPE_RETURN_IF_ERROR(WriteFile(arguments.Text("--svg"), HeatMap(profile, arguments.Text("FUNCTION"))));
  }
  if (arguments.Has("--csv")) {
    TROUPE_ASSIGN_OR_RETURN(const auto profile, ChooseProfile(reply, kind));
    session.out() << ProfileCsv(profile);
    return absl::OkStatus();
  }
  if (!kind.empty()) {
    auto& profiles = *reply.mutable_profiles();
    profiles.erase(std::remove_if(profiles.begin(), profiles.end(),
                                  [&](const auto& one) { return one.gpu_kind() != kind; }),
                   profiles.end());
  }
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  PrintProfiles(session, reply);
  return absl::OkStatus();
}

absl::Status ProfileImport(Session& session, const Arguments& arguments) {
  const auto& path = arguments.Text("FILE");
  const auto text = ReadFile(path, kMostProfileFile);
  if (!text.ok()) return AsUsageError(text.status());
  auto profile = ReadProfile(*text);
  if (!profile.ok()) return UsageError(Cat(Printable(path), ", ", FromAbsl(profile.status().message())));
  proto::AdminRequest request;
  auto& wish = *request.mutable_import_profile();
  *wish.mutable_key() = ProfiledKey(arguments);
  *wish.mutable_profile() = *std::move(profile);
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "importing"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  for (const auto& kept : reply.profiles())
    session.out() << DescribeKey(wish.key()) << " has a profile of " << kept.rows_size() << " rows on "
                  << Printable(kept.gpu_kind()) << '\n';
  return absl::OkStatus();
}

absl::Status ProfileRemove(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  *request.mutable_remove_profile()->mutable_key() = ProfiledKey(arguments);
  request.mutable_remove_profile()->set_gpu_kind(arguments.Text("--kind"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "removing"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  for (const auto& removed : reply.profiles())
    session.out() << "the profile on " << Printable(removed.gpu_kind()) << " is removed\n";
  return absl::OkStatus();
}

absl::Status ProfileCancel(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  *request.mutable_cancel_profiling()->mutable_key() = ProfiledKey(arguments);
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "cancelling"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  for (const auto& experiment : reply.experiments()) session.out() << ExperimentLine(experiment) << '\n';
  return absl::OkStatus();
}

const Argument kFunction = {
    .name = "FUNCTION", .kind = Kind::kFunction, .help = "the function", .required = true};
const Argument kVersion = {
    .name = "--version", .kind = Kind::kVersion, .help = "the version; as requests find it when absent"};

}  // namespace

std::vector<Verb> ProfileVerbs() {
  const std::string group = "profile";
  return {
      {.group = group,
       .name = "run",
       .summary = "Measure a function on shares of a GPU; 'profile FUNCTION' is short for it",
       .arguments = {kFunction,
                     {.name = "--grid", .kind = Kind::kFlag, .help = "a trial at every point"},
                     {.name = "--bisect",
                      .kind = Kind::kFlag,
                      .help = "find the saturation with at most 40 % as many trials (default)"},
                     {.name = "--on", .kind = Kind::kGpu, .help = "the GPU, as NODE/N"},
                     {.name = "--batch", .help = "requests of each run: 4, 1,4 or 1..32 (1, 2, 4 and so on)"},
                     {.name = "--shares", .help = "percent of the SMs (6,12,24,50,60,80,100)"},
                     {.name = "--quotas", .help = "percent of the time (20,40,60,80,100)"},
                     {.name = "--trial-limit",
                      .kind = Kind::kDuration,
                      .help = "a trial that is not steady by then has failed (1m)"},
                     {.name = "--detach", .kind = Kind::kFlag, .help = "do not wait for its end"},
                     kVersion},
       .run = ProfileRun},
      {.group = group,
       .name = "show",
       .summary = "The profiles of a function and its latest experiment",
       .arguments = {kFunction,
                     {.name = "--svg", .kind = Kind::kFile, .help = "write a heat map to this file, too"},
                     {.name = "--csv", .kind = Kind::kFlag, .help = "one profile, as a file to import"},
                     {.name = "--kind", .help = "of this kind of GPU alone"},
                     kVersion},
       .run = ProfileShow},
      {.group = group,
       .name = "import",
       .summary = "Keep a profile from a file (CSV, or JSON of 'profile show --json') for a function",
       .arguments = {kFunction,
                     {.name = "FILE", .kind = Kind::kFile, .help = "the file", .required = true},
                     kVersion},
       .run = ProfileImport},
      {.group = group,
       .name = "remove",
       .summary = "Remove the profiles of a function's model; its other functions had the same ones",
       .arguments = {kFunction, {.name = "--kind", .help = "of this kind of GPU alone"}, kVersion},
       .run = ProfileRemove},
      {.group = group,
       .name = "cancel",
       .summary = "End a function's experiment; the rows that it has are kept",
       .arguments = {kFunction, kVersion},
       .run = ProfileCancel},
  };
}

}  // namespace troupe::shell
