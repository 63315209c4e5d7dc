#include "node/tensors/input_placement.hpp"

namespace troupe::node {

namespace {

Duration BeginAt(const InputOffer& offer, Bytes total, double nanos_per_byte) {
  const auto elsewhere = static_cast<double>((total - offer.kept).count());
  return offer.wait + offer.swap + Duration(static_cast<Duration::rep>(2 * elsewhere * nanos_per_byte));
}

}  // namespace

std::optional<std::uint32_t> ChooseForInputs(std::span<const InputOffer> offers, Bytes total,
                                             double nanos_per_byte) {
  const InputOffer* best = nullptr;
  Duration first = Duration::max();
  for (const InputOffer& offer : offers) {
    const Duration begin = BeginAt(offer, total, nanos_per_byte);
    const bool equal = best != nullptr && begin == first;
    if (best != nullptr && !(begin < first || (equal && offer.kept > best->kept))) continue;
    best = &offer;
    first = begin;
  }
  if (best == nullptr || best->kept == Bytes(0)) return std::nullopt;
  return best->device;
}

}  // namespace troupe::node
