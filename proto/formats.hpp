// Versions of what is kept or sent, in one place: `trouped --version` tells them, so that an operator sees
// before an upgrade what changes. A reader refuses a newer format and says so.
#pragma once

#include <cstdint>

namespace troupe::proto {

// A manager's metadata; 1: without the mark of the last commit. A store of format 1 is upgraded when it is
// opened.
inline constexpr int kMetadataFormat = 2;
inline constexpr int kBackupFormat = 1;
// Canonical models, on disks and in host regions; 1: without subgraphs. A model that has none is written as 1, so that
// its digest stays what it was.
inline constexpr std::uint32_t kModelFormat = 2;
// Orders and outcomes between a daemon and a GPU worker that outlives it.
inline constexpr std::uint32_t kRingFormat = 1;
// What two hosts say when one fetches a tensor of the other.
inline constexpr std::uint32_t kTensorFetchFormat = 3;

}  // namespace troupe::proto
