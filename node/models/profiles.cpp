#include "node/models/profiles.hpp"

#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::node {

namespace {

constexpr std::uint32_t kWithoutKinds = 1, kFormat = 2;

}  // namespace

proto::NodeProfiles ExportProfiles(const SwapScheduler& scheduler, const GpuKinds& kinds) {
  proto::NodeProfiles profiles;
  profiles.set_format_version(kFormat);
  const auto& rates = scheduler.costs().nanos_per_byte();
  for (KindId kind = 0; kind < rates.size(); ++kind) {
    if (*rates.Find(kind) == 0) continue;
    auto& link = *profiles.add_links();
    link.set_gpu_kind(kinds.NameOf(kind));
    link.set_nanos_per_byte(*rates.Find(kind));
  }
  const auto copies = scheduler.FirstCopies();
  for (const ModelCost& cost : scheduler.costs().Known()) {
    auto& profile = *profiles.add_models();
    profile.set_model(cost.model);
    profile.set_gpu_kind(kinds.NameOf(cost.kind));
    profile.set_run_ns(cost.run.count());
    profile.set_swapped_ns(cost.swapped.count());
    *profile.mutable_run_histogram() = {cost.run_times.begin(), cost.run_times.end()};
    const auto found = copies.find(cost.model);
    const auto copy = found == copies.end() ? ModelNumber() : found->second;
    profile.set_weights_bytes(scheduler.WeightsOf(copy).count());
    profile.set_heavy(scheduler.HeavyOn(copy, cost.kind));
  }
  return profiles;
}

absl::Status ImportProfiles(const proto::NodeProfiles& profiles, GpuKinds& kinds, SwapScheduler& scheduler) {
  if (profiles.format_version() != kFormat && profiles.format_version() != kWithoutKinds) {
    return absl::InvalidArgumentError(absl::StrCat("these profiles have format ", profiles.format_version(),
                                                   ", and this program reads ", kWithoutKinds, " and ",
                                                   kFormat, "; they will be learned anew"));
  }
  ByKind<double> rates;
  rates.At(0) = profiles.nanos_per_byte();
  for (const auto& link : profiles.links())
    if (const auto kind = kinds.Remember(link.gpu_kind())) rates.At(*kind) = link.nanos_per_byte();
  std::vector<ModelCost> known;
  known.reserve(static_cast<std::size_t>(profiles.models_size()));
  for (const auto& profile : profiles.models()) {
    const auto kind = kinds.Remember(profile.gpu_kind());
    if (!kind) continue;
    known.push_back({profile.model(),
                     Duration(profile.run_ns()),
                     Duration(profile.swapped_ns()),
                     {profile.run_histogram().begin(), profile.run_histogram().end()},
                     *kind});
  }
  scheduler.RestoreCosts(known, rates);
  return absl::OkStatus();
}

}  // namespace troupe::node
