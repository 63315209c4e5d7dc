// PROFILING: the experiments that measure functions on shares of a GPU (001 FaST-GShare, section 3.2), and the profiles
// that come of them. Owns what is under way; the records are the catalogue's.
//
//   begun (stored) -> [next trial -> asked of its node -> its row is stored] ... -> its profile and its end are stored
//
// One trial of an experiment at a time, and one experiment on a GPU. A row is stored before the next trial is asked
// for, so a manager that was started again goes on behind the last stored row. A node that is lost costs the row of
// its trial; the experiment waits a minute for the node, and then fails.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "cluster/events.hpp"
#include "cluster/profiling/trial_plan.hpp"
#include "cluster/records/after_commit.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class Profiling {
 public:
  static constexpr std::size_t kMostRunning = 64;
  static constexpr Duration kPatience = std::chrono::minutes(1);  // with a node that is away
  static constexpr Duration kRetry =
      std::chrono::seconds(1);  // of what could not be stored, or was not taken

  explicit Profiling(Parts& parts) : parts_(parts) {}

  void Begin(Ask ask, const proto::ProfileFunction& wish);
  void Import(Ask ask, const proto::ImportProfile& wish);
  void Cancel(Ask ask, const proto::CancelProfiling& wish);
  void Show(Ask ask, const proto::FunctionKey& key);
  // Takes up what the store has of an earlier manager, and whatever can go on.
  void Pulse();
  void On(TrialAnswered& event);
  void On(ExperimentStored& stored, const absl::Status& status);

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(KeepingProfile& change) const;
  void Answer(KeepingProfile& change, const absl::Status& status);

 private:
  // How an experiment that runs goes on.
  struct Course {
    bool busy = false;                  // a trial or a commit is under way
    std::optional<TrialPoint> asked{};  // that trial
    Time away_since = Time::max();      // its node
    Time not_before{};
    proto::ExperimentState end = proto::EXPERIMENT_RUNNING;  // else it is to end so, with `message`
    std::string message{};
  };
  [[nodiscard]] absl::StatusOr<proto::ProfilingExperiment> Plan(const proto::ProfileFunction& wish) const;
  // The GPU that the wish names, or the first one without an experiment on a node that holds the model. A GPU
  // whose worker is being started is taken when none is ready: its first trial waits for it.
  absl::Status ChooseGpu(const proto::ProfileFunction& wish, proto::ProfilingExperiment& experiment) const;
  [[nodiscard]] bool Occupied(const std::string& node, std::uint32_t gpu) const;
  // Whether its node is here and has told that the GPU is ready.
  [[nodiscard]] bool Ready(const std::string& node, std::uint32_t gpu) const;
  void GoOn(std::uint64_t number, Course& course);
  void AskTrial(const proto::ProfilingExperiment& experiment, const TrialPoint& point, Course& course);
  void AwaitNode(const proto::ProfilingExperiment& experiment, Course& course);
  void End(std::uint64_t number, Course& course, Ask ask);
  void Tell(const proto::ProfilingExperiment& experiment);
  void AddExperiment(const proto::ProfilingExperiment& experiment, proto::AdminReply& reply) const;

  Parts& parts_;
  std::map<std::uint64_t, Course> courses_;           // by the number of the experiment
  std::map<std::uint64_t, std::string> beginning_{};  // experiments that are not stored yet: "NODE/GPU"
};

}  // namespace troupe::cluster
