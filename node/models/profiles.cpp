#include "node/models/profiles.hpp"

#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::node {

namespace {

constexpr std::uint32_t kFormat = 1;

}  // namespace

proto::NodeProfiles ExportProfiles(const SwapScheduler& scheduler) {
  proto::NodeProfiles profiles;
  profiles.set_format_version(kFormat);
  profiles.set_nanos_per_byte(scheduler.costs().nanos_per_byte());
  const auto copies = scheduler.FirstCopies();
  for (const ModelCost& cost : scheduler.costs().Known()) {
    auto& profile = *profiles.add_models();
    profile.set_model(cost.model);
    profile.set_run_ns(cost.run.count());
    profile.set_swapped_ns(cost.swapped.count());
    *profile.mutable_run_histogram() = {cost.run_times.begin(), cost.run_times.end()};
    const auto found = copies.find(cost.model);
    const auto copy = found == copies.end() ? ModelNumber() : found->second;
    profile.set_weights_bytes(scheduler.WeightsOf(copy).count());
    profile.set_heavy(scheduler.Heavy(copy));
  }
  return profiles;
}

absl::Status ImportProfiles(const proto::NodeProfiles& profiles, SwapScheduler& scheduler) {
  if (profiles.format_version() != kFormat) {
    return absl::InvalidArgumentError(absl::StrCat("these profiles have format ", profiles.format_version(),
                                                   ", and this program reads ", kFormat,
                                                   "; they will be learned anew"));
  }
  std::vector<ModelCost> known;
  known.reserve(static_cast<std::size_t>(profiles.models_size()));
  for (const auto& profile : profiles.models()) {
    known.push_back({profile.model(),
                     Duration(profile.run_ns()),
                     Duration(profile.swapped_ns()),
                     {profile.run_histogram().begin(), profile.run_histogram().end()}});
  }
  scheduler.RestoreCosts(known, profiles.nanos_per_byte());
  return absl::OkStatus();
}

}  // namespace troupe::node
