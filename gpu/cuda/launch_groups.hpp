// LAUNCH GROUPS: how a launch with a limit is cut on a GPU, and how a launch that takes turns pauses. Work on a
// CUDA stream cannot be called back, and a graph ends as a whole. So a launch that may take longer than a
// small part of its limit, or than a turn's group, is submitted in groups of steps: each group when the group
// before it has ended. Between two groups the launch is cut if its limit has passed, and asks for its turn.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/units.hpp"
#include "gpu/cuda/stream.hpp"
#include "gpu/device/launch_limit.hpp"

namespace troupe::gpu::cuda {

// Learns how long the steps of one plan take, in units of a few steps, and makes launch groups of them. A
// plan that is not known yet has a group for each unit; a plan that takes little of its limit is one group,
// and costs nothing. Pure; of one CUDA stream, where launches come one at a time.
class LaunchGroups {
 public:
  static constexpr std::size_t kUnit = 4;  // steps
  explicit LaunchGroups(std::size_t steps) : steps_(steps) {}

  // Where the groups of a launch end, the last one at the end of the plan. No group was ever seen to take
  // more than an eighth of the limit, but a single unit that does. They stay as they are while that holds:
  // recordings are made for them. `sms`: those of the launch's share.
  [[nodiscard]] const std::vector<std::size_t>& Ends(std::uint32_t sms, Duration limit);
  // What steps, whole units of them or up to the end, took on the GPU.
  void Learn(std::uint32_t sms, std::size_t begin, std::size_t end, Duration took);

 private:
  struct Share {
    std::vector<Duration> units;  // zero: not known
    std::vector<std::size_t> ends;
    Duration piece{};  // that the ends were chosen for; zero: none were
  };
  [[nodiscard]] Share& Of(std::uint32_t sms);
  [[nodiscard]] static Duration Sum(const Share& share, std::size_t begin, std::size_t end);
  [[nodiscard]] static bool Known(const Share& share);
  // All units are known, and no group of several takes more than twice the piece.
  [[nodiscard]] static bool Holds(const Share& share, Duration piece);
  [[nodiscard]] std::vector<std::size_t> Choose(const Share& share, Duration piece) const;

  const std::size_t steps_;
  std::map<std::uint32_t, Share> shares_;
};

// One launch of a plan, as it is put on its stream.
class GroupedLaunch {
 public:
  GroupedLaunch(Submission& submission, LaunchGroups& groups, const LaunchArguments& arguments,
                std::size_t steps);
  // The groups' ends but for the last one; none without a limit or turns.
  [[nodiscard]] const std::vector<std::size_t>& ends() const { return ends_; }
  // Whether a group ends before this step.
  [[nodiscard]] bool EndsAt(std::size_t step) const { return next_ < ends_.size() && ends_[next_] == step; }
  // Before each step: waits at the begin of a group until what comes before it has ended. DeadlineExceeded:
  // the launch has passed its limit, and nothing of it is under way any more.
  absl::Status Before(std::size_t step);
  // All of it is on the stream.
  void Submitted();

 private:
  Submission& submission_;
  LaunchGroups& groups_;
  const std::size_t steps_;
  const std::uint32_t sms_;
  const std::function<EventPtr(Duration)> turn_;
  LaunchLimit limit_;
  std::vector<std::size_t> ends_;
  std::size_t next_ = 0;   // in ends_
  std::size_t begin_ = 0;  // of the group that is being put on the stream
  Duration used_{};        // before it
};

}  // namespace troupe::gpu::cuda
