// PROFILE TRIALS: trials of the manager's experiments on this node's GPUs (001 FaST-GShare, section 3.2). A trial is
// one instance of a function on a share of the SMs and of the time: runs of zeros, one after the other, until
// their throughput is steady (steady_throughput.hpp), the trial's limit is over, or a run fails.
//
//   asked -> running -(its throughput is steady)-> measured
//                    -(a run failed, or its limit is over)-> failed: a row that says why
//   asked -(this node cannot do it)-> refused: no row
//
// Requests of others go on as before, and a trial's runs teach the scheduler nothing: their share is not that of
// the function. At most one trial is under way on a GPU.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "node/events.hpp"
#include "node/profiling/steady_throughput.hpp"
#include "node/requests/held_request.hpp"
#include "proto/function_profile.pb.h"

namespace troupe::node {

struct Parts;

class ProfileTrials {
 public:
  explicit ProfileTrials(Parts& parts) : parts_(parts) {}

  void On(const TrialAsked& event);
  void On(const TrialStopped& event);
  // The next run of each trial whose last one has ended.
  void Begin();
  void Ended(const Finished& finished, const HeldRequest& held);

 private:
  struct Trial {
    Ask ask = 0;
    proto::RunTrial wish{};
    ModelNumber copy{};
    Tensors inputs{};       // of each run
    bool in_arena = false;  // some have to be placed there, or are there
    bool placed = false;
    std::uint64_t serial = 0;  // of its latest run
    bool running = false;      // that one has not ended
    bool failed = false;       // the trial is over when that one has ended
    bool beside_load = false;
    Time begun{};
    Time run_begun{};
    SteadyThroughput throughput{};
    Bytes run_bytes{};        // of the run that took most of the device's memory
    proto::ProfileRow row{};  // how it failed, with `failed`
  };
  [[nodiscard]] absl::StatusOr<Trial> Prepare(const proto::RunTrial& wish) const;
  void Run(Trial& trial);
  // The run that is under way ends first.
  void Fail(Trial& trial, const std::string& reason);
  void End(Trial& trial);
  void Refuse(Ask ask, const absl::Status& why);

  Parts& parts_;
  std::map<std::uint32_t, Trial> trials_;  // by device
};

}  // namespace troupe::node
