// RE-PLAN: other places for instances that are booked, as few as possible, so that one more instance fits, a GPU is
// less fragmented, or a GPU becomes empty.
//
// First one instance is lifted from its GPU, then each pair, and so on up to `most_moves`; what was lifted is placed
// anew at the bottom left corners of free rectangles, in every order and at every such corner. A packing that exists
// can be pushed to the left and down until each instance lies in such a corner, so none is missed; but the search ends
// after so many steps, and then the instances stay where they are. The moves of a plan belong together: an instance may
// move to where another one was. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cluster/rectangles/layout.hpp"

namespace troupe::cluster {

struct ReplanLimits {
  std::uint32_t most_moves = 8;  // of one plan
  // A GPU is planned anew when a larger part of it is free outside its largest free rectangle.
  double fragmentation = 0.3;
  std::uint32_t most_gpus = 16;           // that one plan looks at: those with the most free area
  std::uint32_t steps = 20'000;           // instances that one plan puts somewhere to try it
  std::uint32_t steps_of_choice = 1'000;  // of these, for one choice of lifted instances
};

// With the instance booked on a GPU that has instances already. Nothing: no such plan was found.
[[nodiscard]] std::optional<Layout> PlanRoomFor(const Gpus& gpus,
                                                const std::shared_ptr<const InstanceRequest>& request,
                                                const ReplanLimits& limits);
// The most fragmented GPU that can be mended is below the limit of fragmentation.
[[nodiscard]] std::optional<Layout> PlanLessFragmentation(const Gpus& gpus, const ReplanLimits& limits);
// One of the GPUs with instances has none any more, since the others took them: that with the fewest that can be.
[[nodiscard]] std::optional<Layout> PlanEmptyGpu(const Gpus& gpus, const ReplanLimits& limits);

}  // namespace troupe::cluster
