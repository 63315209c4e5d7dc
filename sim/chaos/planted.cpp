#include "sim/chaos/planted.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::sim {

const std::array<PlantedName, 32>& AllPlanted() {
  static constexpr std::array<PlantedName, 32> kAll = {{
      {Planted::kDropRecord, "drop-record", "store"},
      {Planted::kStaleEpoch, "stale-epoch", "epochs"},
      {Planted::kDoubleAnswer, "double-answer", "requests"},
      {Planted::kHiddenFunction, "hidden-function", "registry"},
      {Planted::kSecondRun, "second-run", "runs"},
      {Planted::kForgottenStep, "forgotten-step", "steps"},
      {Planted::kIgnoredCondition, "ignored-condition", "steps"},
      {Planted::kSmallGpu, "small-gpu", "memory"},
      {Planted::kLostState, "lost-state", "states"},
      {Planted::kSharedState, "shared-state", "states"},
      {Planted::kForgottenImages, "forgotten-images", "states"},
      {Planted::kStaleImage, "stale-image", "states"},
      {Planted::kForgottenKey, "forgotten-key", "states"},
      {Planted::kCountedTwice, "counted-twice", "counts"},
      {Planted::kForgottenPages, "forgotten-pages", "usage"},
      {Planted::kUncutRun, "uncut-run", "limits"},
      {Planted::kUnchargedRun, "uncharged-run", "quotas"},
      {Planted::kSwappedMembers, "swapped-members", "requests"},
      {Planted::kTrustedWeights, "trusted-weights", "requests"},
      {Planted::kTrustedRanges, "trusted-ranges", "models"},
      {Planted::kForgottenUpdate, "forgotten-update", "sharing"},
      {Planted::kDisobeyedOwner, "disobeyed-owner", "ownership"},
      {Planted::kUnreleased, "unreleased", "tensors"},
      {Planted::kSpoiledCopy, "spoiled-copy", "requests"},
      {Planted::kSwappedParts, "swapped-parts", "requests"},
      {Planted::kForgottenWakeup, "forgotten-wakeup", "waits"},
      {Planted::kSwappedRuntimes, "swapped-runtimes", "isolation"},
      {Planted::kPinnedVersion, "pinned-version", "versions"},
      {Planted::kUnevenVersions, "uneven-versions", "versions"},
      {Planted::kKeptState, "kept-state", "states"},
      {Planted::kTornStages, "torn-stages", "registry"},
      {Planted::kUnmended, "unmended", "quiescence"},
  }};
  return kAll;
}

absl::StatusOr<Planted> FindPlanted(std::string_view name) {
  if (name.empty() || name == "none") return Planted::kNone;
  const auto& all = AllPlanted();
  const auto it = std::ranges::find(all, name, &PlantedName::name);
  if (it != all.end()) return it->planted;
  std::vector<std::string> names;
  for (const auto& planted : all) names.emplace_back(planted.name);
  return absl::InvalidArgumentError(absl::StrCat("no planted error is called '", std::string(name),
                                                 "'; there are ", absl::StrJoin(names, ", ")));
}

}  // namespace troupe::sim
