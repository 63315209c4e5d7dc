#include "cluster/profiling/profiling.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "cluster/admin/staged_models.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"
#include "cluster/profiling/profile_checks.hpp"

namespace troupe::cluster {

namespace {

constexpr Duration kTrialLimit = std::chrono::minutes(1);
constexpr Duration kLeastTrialLimit = std::chrono::seconds(1), kMostTrialLimit = std::chrono::hours(1);

std::string GpuOf(const proto::ProfilingExperiment& experiment) {
  return absl::StrCat(experiment.node(), "/", experiment.gpu());
}

// A row that failed does not take the place of a figure.
void Merge(std::vector<proto::ProfileRow> rows, proto::FunctionProfile& profile) {
  std::map<TrialPoint, proto::ProfileRow> all;
  for (auto& row : *profile.mutable_rows()) all[PointOf(row)] = std::move(row);
  for (auto& row : rows) {
    auto& place = all[PointOf(row)];
    const bool measured = place.throughput() > 0;
    if (row.state() != proto::PROFILE_ROW_FAILED || !measured) place = std::move(row);
  }
  profile.clear_rows();
  for (auto& [point, row] : all) *profile.add_rows() = std::move(row);
  std::ranges::sort(*profile.mutable_rows(), [](const auto& a, const auto& b) {
    return std::tuple(a.batch(), a.quota_limit(), a.sm_partition()) <
           std::tuple(b.batch(), b.quota_limit(), b.sm_partition());
  });
}

proto::FunctionProfile ProfileLike(const proto::ProfilingExperiment& experiment) {
  proto::FunctionProfile profile;
  profile.set_model_digest(experiment.model_digest());
  profile.set_gpu_kind(experiment.gpu_kind());
  profile.set_precision(experiment.precision());
  return profile;
}

}  // namespace

// --- what people ask ---

bool Profiling::Ready(const std::string& node, std::uint32_t gpu) const {
  const auto* member = parts_.members.table().Find(node);
  if (member == nullptr || !parts_.members.HasNode(node)) return false;
  return std::ranges::any_of(member->record.gpus(), [gpu](const auto& record) {
    return record.index() == gpu && record.state() == "ready";
  });
}

bool Profiling::Occupied(const std::string& node, std::uint32_t gpu) const {
  const auto name = absl::StrCat(node, "/", gpu);
  return std::ranges::any_of(beginning_, [&](const auto& one) { return one.second == name; }) ||
         std::ranges::any_of(parts_.catalogue.profiles().experiments(), [&](const auto& one) {
           return one.second.state() == proto::EXPERIMENT_RUNNING && GpuOf(one.second) == name;
         });
}

absl::Status Profiling::ChooseGpu(const proto::ProfileFunction& wish,
                                  proto::ProfilingExperiment& experiment) const {
  const auto holders = parts_.copies.table().copies().HoldersOf(experiment.model_digest());
  if (!wish.node().empty() && std::ranges::find(holders, wish.node()) == holders.end())
    return absl::FailedPreconditionError(absl::StrCat(
        "node '", wish.node(), "' does not hold the model of ", Describe(experiment.key()), "; ",
        holders.empty() ? "no node does yet" : absl::StrCat("these do: ", absl::StrJoin(holders, ", "))));
  const proto::GpuRecord* chosen = nullptr;
  for (const auto& node : holders) {
    if ((!wish.node().empty() && node != wish.node()) || !parts_.members.HasNode(node)) continue;
    const auto* member = parts_.members.table().Find(node);
    if (member == nullptr) continue;
    for (const auto& gpu : member->record.gpus()) {
      if (wish.has_gpu() && gpu.index() != wish.gpu()) continue;
      if (gpu.state() == "unfit" || Occupied(node, gpu.index())) continue;
      if (chosen != nullptr && (chosen->state() == "ready" || gpu.state() != "ready")) continue;
      chosen = &gpu;
      experiment.set_node(node);
      experiment.set_gpu(gpu.index());
      experiment.set_gpu_kind(gpu.kind());
    }
  }
  if (chosen != nullptr) return absl::OkStatus();
  const auto where = wish.node().empty()
                         ? std::string("the nodes that hold the model")
                         : absl::StrCat("node '", wish.node(), "'",
                                        wish.has_gpu() ? absl::StrCat(", GPU ", wish.gpu()) : "");
  return absl::FailedPreconditionError(
      absl::StrCat("no GPU is there for the experiment: ", where,
                   " have none that is fit and has no experiment; see 'troupe gpu list'"));
}

absl::StatusOr<proto::ProfilingExperiment> Profiling::Plan(const proto::ProfileFunction& wish) const {
  const auto* function = parts_.catalogue.functions().table().Find(wish.key());
  if (function == nullptr) return NotOneFunction(parts_.catalogue, wish.key());
  if (!proto::ProfilingMethod_IsValid(wish.method()))
    return absl::InvalidArgumentError("the experiment is neither a grid nor bisecting");
  if (courses_.size() + beginning_.size() >= kMostRunning)
    return absl::ResourceExhaustedError(
        absl::StrCat(kMostRunning, " experiments run already; try again later"));
  proto::ProfilingExperiment experiment;
  *experiment.mutable_key() = function->key();
  experiment.set_model_digest(function->model_digest());
  experiment.set_precision(function->precision());
  experiment.set_method(wish.method());
  TROUPE_ASSIGN_OR_RETURN(*experiment.mutable_grid(), CompleteGrid(wish.grid()));
  TROUPE_RETURN_IF_ERROR(CheckMayBeProfiled(*function, experiment.grid()));
  const Duration limit = wish.trial_limit_ns() == 0 ? kTrialLimit : Duration(wish.trial_limit_ns());
  if (limit < kLeastTrialLimit || limit > kMostTrialLimit)
    return absl::InvalidArgumentError(
        absl::StrCat("a trial's limit is ", FormatDuration(limit), "; it lies between 1s and 1h"));
  experiment.set_trial_limit_ns(limit.count());
  TROUPE_RETURN_IF_ERROR(ChooseGpu(wish, experiment));
  const auto last = beginning_.empty() ? 0 : beginning_.rbegin()->first;
  experiment.set_number(std::max(parts_.catalogue.profiles().NextNumber(), last + 1));
  experiment.set_begun_unix_ns(parts_.out.unix_now());
  return experiment;
}

void Profiling::Begin(Ask ask, const proto::ProfileFunction& wish) {
  auto experiment = Plan(wish);
  if (!experiment.ok()) return parts_.admin.Reply(ask, Failure<proto::AdminReply>(experiment.status()));
  beginning_.emplace(experiment->number(), GpuOf(*experiment));
  auto changes = ChangesFor(parts_.catalogue, *experiment);
  parts_.commits.Add(std::move(changes), ExperimentStored{ask, *std::move(experiment)});
}

void Profiling::Import(Ask ask, const proto::ImportProfile& wish) {
  const auto* function = parts_.catalogue.functions().table().Find(wish.key());
  if (function == nullptr)
    return parts_.admin.Reply(ask, Failure<proto::AdminReply>(NotOneFunction(parts_.catalogue, wish.key())));
  KeepingProfile change{.ask = ask};
  auto& profile = (*change.command.mutable_profile() = wish.profile());
  if (profile.model_digest().empty()) profile.set_model_digest(function->model_digest());
  if (const auto status = CheckProfile(profile, *function); !status.ok())
    return parts_.admin.Reply(ask, Failure<proto::AdminReply>(status));
  profile.set_imported(true);
  profile.set_unix_ns(parts_.out.unix_now());
  parts_.mutations.Add(std::move(change));
}

void Profiling::Cancel(Ask ask, const proto::CancelProfiling& wish) {
  for (auto& [number, course] : courses_) {
    const auto& experiment = parts_.catalogue.profiles().experiments().at(number);
    if (experiment.key().name() != wish.key().name() || course.end != proto::EXPERIMENT_RUNNING) continue;
    if (!wish.key().version().empty() && wish.key().version() != experiment.key().version()) continue;
    proto::StopTrial stop;
    stop.set_experiment(number);
    // The node may have a trial of it that an earlier manager asked for.
    if (parts_.members.HasNode(experiment.node()))
      parts_.out.Add(TellTrialStopped{experiment.node(), std::move(stop)});
    course.end = proto::EXPERIMENT_CANCELLED;
    course.message = "an operator cancelled it";
    return End(number, course, ask);
  }
  parts_.admin.Reply(ask, Failure<proto::AdminReply>(absl::NotFoundError(
                              absl::StrCat(Describe(wish.key()), " has no experiment that runs"))));
}

void Profiling::AddExperiment(const proto::ProfilingExperiment& experiment, proto::AdminReply& reply) const {
  auto& shown = *reply.add_experiments();
  shown = experiment;
  if (experiment.state() != proto::EXPERIMENT_RUNNING) return;
  shown.set_trials_left(TrialsLeft(experiment));
  if (experiment.rows().empty()) return;
  std::int64_t took = 0;
  for (const auto& row : experiment.rows()) took += row.took_ns();
  shown.set_left_ns(took / experiment.rows_size() * shown.trials_left());
}

void Profiling::Show(Ask ask, const proto::FunctionKey& key) {
  const auto& functions = parts_.catalogue.functions().table();
  const auto* function = functions.Find(key);
  if (function == nullptr)
    return parts_.admin.Reply(ask, Failure<proto::AdminReply>(NotOneFunction(parts_.catalogue, key)));
  proto::AdminReply reply;
  reply.add_functions()->mutable_record()->CopyFrom(*function);
  std::vector<std::string> others;
  for (const auto& [name, profile] : parts_.catalogue.profiles().profiles())
    if (profile.model_digest() == function->model_digest()) *reply.add_profiles() = profile;
  for (const auto& [number, record] : *functions.VersionsOf(function->key().name())) {
    const std::string& model = record.model_digest();
    const bool profiled =
        std::ranges::any_of(parts_.catalogue.profiles().profiles(),
                            [&model](const auto& one) { return one.second.model_digest() == model; });
    if (profiled && model != function->model_digest()) others.push_back(record.key().version());
  }
  if (!others.empty())
    reply.set_message(absl::StrCat("version ", absl::StrJoin(others, ", "),
                                   " has a profile, of another model: it is not used for version ",
                                   function->key().version()));
  const proto::ProfilingExperiment* latest = nullptr;
  for (const auto& [number, experiment] : parts_.catalogue.profiles().experiments())
    if (experiment.model_digest() == function->model_digest() &&
        experiment.key().name() == function->key().name())
      latest = &experiment;
  if (latest != nullptr) AddExperiment(*latest, reply);
  parts_.admin.Reply(ask, std::move(reply));
}

// --- how experiments go on ---

void Profiling::Pulse() {
  for (const auto& [number, experiment] : parts_.catalogue.profiles().experiments())
    if (experiment.state() == proto::EXPERIMENT_RUNNING) courses_.try_emplace(number);
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, course] : courses_) numbers.push_back(number);
  for (const auto number : numbers)
    if (const auto it = courses_.find(number); it != courses_.end()) GoOn(number, it->second);
}

void Profiling::GoOn(std::uint64_t number, Course& course) {
  if (course.busy || parts_.out.now() < course.not_before) return;
  if (course.end != proto::EXPERIMENT_RUNNING) return End(number, course, 0);
  const auto& experiment = parts_.catalogue.profiles().experiments().at(number);
  const auto point = NextTrial(experiment);
  if (!point) {
    course.end = proto::EXPERIMENT_DONE;
    return End(number, course, 0);
  }
  if (!Ready(experiment.node(), experiment.gpu())) return AwaitNode(experiment, course);
  course.away_since = Time::max();
  AskTrial(experiment, *point, course);
}

void Profiling::AwaitNode(const proto::ProfilingExperiment& experiment, Course& course) {
  const auto now = parts_.out.now();
  course.away_since = std::min(course.away_since, now);
  if (now - course.away_since < kPatience) return;
  course.end = proto::EXPERIMENT_FAILED;
  course.message = absl::StrCat("GPU ", GpuOf(experiment), " was not ready for ", FormatDuration(kPatience));
  End(experiment.number(), course, 0);
}

void Profiling::AskTrial(const proto::ProfilingExperiment& experiment, const TrialPoint& point,
                         Course& course) {
  proto::RunTrial trial;
  trial.set_experiment(experiment.number());
  *trial.mutable_key() = experiment.key();
  trial.set_model_digest(experiment.model_digest());
  trial.set_gpu(experiment.gpu());
  trial.set_gpu_kind(experiment.gpu_kind());
  trial.set_sm_partition(point.sm_partition);
  trial.set_quota_limit(point.quota_limit);
  trial.set_batch(point.batch);
  trial.set_limit_ns(experiment.trial_limit_ns());
  course.busy = true;
  course.asked = point;
  parts_.out.Add(cluster::AskTrial{experiment.node(), std::move(trial)});
}

void Profiling::On(TrialAnswered& event) {
  const auto it = courses_.find(event.experiment);
  if (it == courses_.end() || !it->second.asked) return;
  auto& course = it->second;
  const auto point = *std::exchange(course.asked, std::nullopt);
  if (course.end != proto::EXPERIMENT_RUNNING) return;  // its end is on its way to the store
  auto experiment = parts_.catalogue.profiles().experiments().at(event.experiment);
  auto row = RowAt(point);
  if (!event.ended.ok()) {
    row.set_state(proto::PROFILE_ROW_FAILED);
    row.set_reason(
        absl::StrCat("node '", experiment.node(), "' did not answer: ", event.ended.status().message()));
  } else if (const auto status = StatusIn(*event.ended); !status.ok()) {
    course.busy = false;
    // Its trial for an earlier manager ends first.
    if (absl::IsUnavailable(status)) {
      course.not_before = parts_.out.now() + kRetry;
      return;
    }
    course.end = proto::EXPERIMENT_FAILED;
    course.message = std::string(status.message());
    return End(event.experiment, course, 0);
  } else {
    row = event.ended->row();
    if (PointOf(row) != point) {
      row = RowAt(point);
      row.set_state(proto::PROFILE_ROW_FAILED);
      row.set_reason(absl::StrCat("node '", experiment.node(), "' answered about another point"));
    }
  }
  row.set_unix_ns(parts_.out.unix_now());
  *experiment.add_rows() = std::move(row);
  auto changes = ChangesFor(parts_.catalogue, experiment);
  parts_.commits.Add(std::move(changes), ExperimentStored{0, std::move(experiment)});
}

void Profiling::On(ExperimentStored& stored, const absl::Status& status) {
  const auto number = stored.experiment.number();
  beginning_.erase(number);
  if (!status.ok() && stored.ask != 0)
    return parts_.admin.Reply(stored.ask, Failure<proto::AdminReply>(status));
  const auto it = courses_.try_emplace(number).first;
  auto& course = it->second;
  if (course.end == proto::EXPERIMENT_RUNNING) course.busy = false;
  // The trial whose row could not be stored is made again.
  if (!status.ok()) {
    course.not_before = parts_.out.now() + kRetry;
    return;
  }
  parts_.catalogue.ApplyExperiment(stored.experiment);
  if (stored.ask != 0) {
    Tell(stored.experiment);
    proto::AdminReply reply;
    AddExperiment(stored.experiment, reply);
    parts_.admin.Reply(stored.ask, std::move(reply));
  }
  GoOn(number, course);
}

void Profiling::End(std::uint64_t number, Course& course, Ask ask) {
  course.busy = true;
  KeepingProfile change{.ask = ask};
  change.command.mutable_experiment()->set_number(number);
  parts_.mutations.Add(std::move(change));
}

void Profiling::Tell(const proto::ProfilingExperiment& experiment) {
  if (experiment.state() == proto::EXPERIMENT_RUNNING)
    return parts_.out.Tell(experiment.node(), "profile-started",
                           absl::StrCat(Describe(experiment.key()), " on GPU ", experiment.gpu(),
                                        ", at most ", TrialsLeft(experiment), " trials"));
  auto text = absl::StrCat(Describe(experiment.key()), " on GPU ", experiment.gpu(), ", ",
                           experiment.rows_size(), " trials, ",
                           absl::AsciiStrToLower(proto::ExperimentState_Name(experiment.state()).substr(11)));
  if (!experiment.message().empty()) absl::StrAppend(&text, ": ", experiment.message());
  parts_.out.Tell(experiment.node(), "profile-ended", text);
}

// --- mutations ---

absl::Status Profiling::Validate(KeepingProfile& change) const {
  auto& command = change.command;
  if (command.has_experiment()) {
    const auto number = command.experiment().number();
    auto& experiment = *command.mutable_experiment();
    experiment = parts_.catalogue.profiles().experiments().at(number);
    const auto& course = courses_.at(number);
    experiment.set_state(course.end);
    experiment.set_message(course.message);
    experiment.set_ended_unix_ns(parts_.out.unix_now());
    command.clear_profile();
    auto rows = RowsOf(experiment);
    if (rows.empty()) return absl::OkStatus();
    auto profile = ProfileLike(experiment);
    if (const auto* known = parts_.catalogue.profiles().Find(profile)) profile = *known;
    Merge(std::move(rows), profile);
    profile.set_imported(false);
    profile.set_unix_ns(parts_.out.unix_now());
    // Its rows stay with the experiment.
    if (parts_.catalogue.profiles().IsFullFor(profile, parts_.catalogue.functions().table())) {
      experiment.set_message("its profile is not kept: there are too many of functions that are deployed");
      return absl::OkStatus();
    }
    *command.mutable_profile() = std::move(profile);
    return absl::OkStatus();
  }
  if (!parts_.catalogue.profiles().IsFullFor(command.profile(), parts_.catalogue.functions().table()))
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("there are ", ProfileRegistry::kMostProfiles, " profiles of functions that are deployed"));
}

void Profiling::Answer(KeepingProfile& change, const absl::Status& status) {
  const auto& command = change.command;
  if (!command.has_experiment()) {
    if (!status.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
    parts_.out.Tell("manager", "profile-imported",
                    absl::StrCat("model ", command.profile().model_digest(), " on ",
                                 command.profile().gpu_kind(), ", ", command.profile().rows_size(), " rows"));
    proto::AdminReply reply;
    *reply.add_profiles() = command.profile();
    return parts_.admin.Reply(change.ask, std::move(reply));
  }
  const auto it = courses_.find(command.experiment().number());
  if (status.ok()) {
    courses_.erase(it);
    Tell(command.experiment());
  } else {
    it->second.busy = false;
    it->second.not_before = parts_.out.now() + kRetry;
  }
  if (change.ask == 0) return;
  auto reply = Failure<proto::AdminReply>(status);
  if (status.ok()) AddExperiment(command.experiment(), reply);
  parts_.admin.Reply(change.ask, std::move(reply));
}

}  // namespace troupe::cluster
