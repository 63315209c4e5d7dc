// The bounds of one worker. What happens at each is said where it is reached: the order is answered, nothing
// is lost.
#pragma once

#include <cstddef>

#include "base/units.hpp"

namespace troupe::gpu {

struct WorkerLimits {
  std::size_t waiting_runs = 1024;     // RESOURCE_EXHAUSTED beyond
  std::size_t staged_runs = 2;         // whose inputs are on the device while another run computes
  std::size_t plans = 128;             // the least recently used goes
  std::size_t preparations = 256;      // waiting for the preparation thread; RESOURCE_EXHAUSTED beyond
  std::size_t loading_models = 64;     // swaps under way; RESOURCE_EXHAUSTED beyond
  std::size_t tensors = 1024;          // inputs or outputs of one run, or parts of one input
  std::size_t pinned_ranges = 16384;   // of one model that another GPU copies; the host has it, too
  std::size_t known_arenas = 256;      // whose mapping is remembered
  std::size_t handshakes = 4;          // connections that have not said hello yet
  Bytes inline_outputs = KiB(512);     // of one run; the rest goes to the arena however small
  Bytes model_description = MiB(256);  // one serialised proto.Model
  Duration handshake = std::chrono::seconds(5);
  Duration broadcast_meeting = std::chrono::seconds(1);   // for all GPUs of a broadcast to come
  Duration broadcast_patience = std::chrono::seconds(5);  // in which nothing of it moves; then the host
  Duration shutdown = std::chrono::seconds(5);            // for what runs to finish
};

}  // namespace troupe::gpu
