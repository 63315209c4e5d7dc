// RUN TABLE: the runs of a worker, from their submission to their answer, and the two queues in which they
// wait: to be staged, and to be launched.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/worker/run.hpp"
#include "gpu/worker/run_queue.hpp"

namespace troupe::gpu {

// The main loop's thread.
class RunTable {
 public:
  // The run waits from now on. Nothing when the sequence is that of another run: then `reply` is not taken.
  [[nodiscard]] std::optional<RunId> Add(RunRequest request, Reply& reply, Urgency urgency);
  [[nodiscard]] Run* Find(RunId id);
  [[nodiscard]] const Run& At(RunId id) const { return *runs_.at(id); }
  [[nodiscard]] std::optional<RunId> OfSequence(std::uint64_t sequence) const;
  // The run leaves the table, and the queue that it is in.
  [[nodiscard]] std::unique_ptr<Run> Take(RunId id);
  // The daemon that gave the sequences is gone.
  void ForgetSequences() { by_sequence_.clear(); }

  // A run that was staged waits to be launched.
  void Ready(RunId id);
  // The queue is that of the stage that the run is in.
  void LeaveQueue(RunId id);
  // The first in line of those that `matches`, a function of a run, accepts.
  template <typename Matches>
  [[nodiscard]] std::optional<RunId> FirstWaiting(Time now, const Matches& matches) const {
    return waiting_.First(now, [this, &matches](RunId id) { return matches(id, At(id)); });
  }
  template <typename Matches>
  [[nodiscard]] std::optional<RunId> FirstReady(Time now, const Matches& matches) const {
    return ready_.First(now, [this, &matches](RunId id) { return matches(id, At(id)); });
  }
  template <typename Call>
  void ForEachReady(const Call& call) const {
    for (const RunId id : ready_.All()) call(id, At(id));
  }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  // Of both queues; Time::max(): never.
  [[nodiscard]] Time NextExpiry() const;
  // Calls for each run that has not begun in time, which has left its queue, and stays in the table.
  void Expire(Time now, const std::function<void(RunId)>& call);

  // In the order of their submission.
  using Matches = std::function<bool(const Run&)>;
  [[nodiscard]] std::vector<RunId> All(const Matches& matches) const;
  [[nodiscard]] bool Any(const Matches& matches) const;
  void ForEach(const std::function<void(Run&)>& call);
  [[nodiscard]] std::size_t size() const { return runs_.size(); }
  // One run more has ended on the device.
  void NoteDone() { ++done_; }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  // The run's weights come by layer.
  void MarkByLayer(Run& run);
  [[nodiscard]] std::size_t by_layer() const { return by_layer_; }

 private:
  std::map<RunId, std::unique_ptr<Run>> runs_;
  std::map<std::uint64_t, RunId> by_sequence_;  // of the daemon that is there now
  RunId next_ = 1;
  RunQueue waiting_;
  RunQueue ready_;
  std::size_t by_layer_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace troupe::gpu
