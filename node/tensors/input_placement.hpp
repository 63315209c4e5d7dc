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
  Bytes kept{};        // of the request's inputs, in its memory
  Duration wait{};     // until what was given to it has run
  Duration swap{};     // to bring the model, if it is not there
  Duration move{};     // to bring the other inputs
  bool linked = true;  // those come over links between GPUs, and not through the host
};

// The GPU at which the request would begin first, if it keeps some of its inputs or links lead there from all of them;
// nothing: the node chooses as for any other request. Equal ones: most bytes, then the smaller index.
[[nodiscard]] std::optional<std::uint32_t> ChooseForInputs(std::span<const InputOffer> offers);

}  // namespace troupe::node
