#include "cluster/step_durability.hpp"

namespace troupe::cluster {

namespace {

constexpr Duration kSync = std::chrono::milliseconds(5);
constexpr std::uint64_t kNanosPerByte = 10;
// Beside a step of this length a sync is not worth its risk: it would be the step that is computed again.
constexpr Duration kShort = std::chrono::milliseconds(20);

}  // namespace

bool WritesKept(proto::StepDurability wish, Duration took, std::uint64_t bytes) {
  if (wish != proto::DURABLE_BY_COST) return wish == proto::DURABLE_BYTES;
  // More bytes than any disk has written by then, and no sum that wraps.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50;
  if (bytes > kMost) return false;
  return took > kSync + Duration(static_cast<Duration::rep>(bytes * kNanosPerByte));
}

bool MayGoOnUnwritten(proto::StepDurability wish, Duration took) {
  return wish != proto::DURABLE_BYTES && took < kShort;
}

}  // namespace troupe::cluster
