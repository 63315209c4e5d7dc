#include "node/tensors/input_placement.hpp"

namespace troupe::node {

std::optional<std::uint32_t> ChooseForInputs(std::span<const InputOffer> offers) {
  const InputOffer* best = nullptr;
  Duration first = Duration::max();
  for (const InputOffer& offer : offers) {
    const Duration begin = offer.wait + offer.swap + offer.move;
    const bool equal = best != nullptr && begin == first;
    if (best != nullptr && !(begin < first || (equal && offer.kept > best->kept))) continue;
    best = &offer;
    first = begin;
  }
  if (best == nullptr || (best->kept == Bytes(0) && !best->linked)) return std::nullopt;
  return best->device;
}

}  // namespace troupe::node
