// LARGEST VALUES: of numbers that follow from shapes which only the run knows, the largest that they can be. Shapes are
// planned for their upper bounds (gpu/ops/step_kernel.hpp). Where numbers only grow with them, what they are at
// these bounds is an upper bound, too, and a step whose output they size (Expand, Tile, Reshape) can be planned by it.
//
//   Shape of a bounded value -> Gather, Concat, Add ... (each grows with its inputs) -> Expand
//
// Owner: a program's builder. Values are named by their numbers in its program.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "gpu/engine/program.hpp"

namespace troupe::gpu {

class LargestValues {
 public:
  // For the shapes of a step's outputs: `infos`, with the largest values as the contents of the input that sizes them.
  // Nothing where no input does, or where nothing is known of it. The outputs are upper bounds.
  [[nodiscard]] std::optional<std::vector<ValueInfo>> ForShapes(const StepContext& ctx,
                                                                std::span<const int> ids,
                                                                std::span<const ValueInfo> infos) const;
  // Notes the largest values of output `made`, whose number is `id`, where they follow from the inputs. `in` and `ids`
  // belong together.
  void Note(const Operator& entry, const StepContext& ctx, std::span<const int> ids,
            std::span<const ValueInfo> in, const ValueInfo& made, int id);

 private:
  // The inputs at their largest; nothing where one of them is not known so.
  [[nodiscard]] std::optional<std::vector<ValueInfo>> AtBounds(const StepContext& ctx,
                                                               std::span<const int> ids,
                                                               std::span<const ValueInfo> in) const;

  std::map<int, AlignedBytes> values_;
};

}  // namespace troupe::gpu
