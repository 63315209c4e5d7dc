// WEIGHT WINDOW: where a model's weights lie on the device while one run reads them by layer: they come
// shortly before their first use and go after the last, and take the places of others that have gone (004
// section 5.1: lazy allocation, eager recycling).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu {

// Some weights that lie together in the blob.
struct WindowPart {
  std::uint64_t offset = 0;  // in the blob, a multiple of 64
  std::uint64_t length = 0;
  std::size_t first = 0;  // steps that read it
  std::size_t last = 0;
  std::uint64_t place = 0;  // in the window, a multiple of 64
  // It may come when all steps before this one have ended, which read what was in its place. At most `first`.
  std::size_t free_at = 0;
};

// Made once per plan. No two parts that are there at the same time share a byte of the window.
struct WeightWindow {
  std::vector<WindowPart> parts;      // in the order in which they come: of their first use
  std::vector<std::uint32_t> needed;  // per step: how many parts, from the first, hold all that it reads
  Bytes size;                         // of the window
  Bytes bytes;                        // of all parts
};

// Weights that are read once are brought together in parts of up to `part` bytes; others, and larger ones,
// are parts of their own. When one part is first used, the parts behind it have their places, as far as the
// parts before them are `ahead` bytes at most.
[[nodiscard]] WeightWindow PlanWindow(const DevicePlan& plan, Bytes part, Bytes ahead);

}  // namespace troupe::gpu
