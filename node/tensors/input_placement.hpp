// INPUT PLACEMENT: which GPU of a node a request runs on whose inputs are kept on GPUs of the node: one sum of what waits,
// what has to be swapped in, and what has to be moved. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/units.hpp"

namespace troupe::node {

// A GPU that the request may run on.
struct InputOffer {
  std::uint32_t device = 0;
  Bytes kept{};     // of the request's inputs, in its memory
  Duration wait{};  // until what was given to it has run
  Duration swap{};  // to bring the model, if it is not there
};

// The GPU at which the request would begin first, of those that keep some of its inputs; nothing: it would begin earlier at
// another GPU, or none keeps any, and the node chooses as for any other request. `total`: of all kept inputs. What is not
// on the GPU passes its link twice, out and in, at `nanos_per_byte`. Equal ones: most bytes, then the smaller index.
[[nodiscard]] std::optional<std::uint32_t> ChooseForInputs(std::span<const InputOffer> offers, Bytes total,
                                                           double nanos_per_byte);

}  // namespace troupe::node
