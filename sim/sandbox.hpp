// SANDBOX: how a published system lets several functions live on one GPU (004): what starts, what it takes of
// the memory, how runs share the compute units and copies the link. The isolation itself is the product's
// (node/runtimes/isolation.hpp): a runtime per function, or per user. Presets that need one stand here;
// sim/presets.hpp finds them beside those of base/policy.hpp.
#pragma once

#include <string>
#include <vector>

#include "base/policy.hpp"
#include "base/units.hpp"
#include "proto/function.pb.h"
#include "proto/worker.pb.h"

namespace troupe::sim {

// The way from one function of a workflow to the next, on one GPU.
enum class HandOver {
  kHost,    // copied to the host, through a store, and back
  kHandle,  // a handle of device memory is opened by the next runtime (CUDA IPC)
  kDirect,  // an address
};

struct Sandbox {
  proto::Isolation isolation = proto::ISOLATION_TENANT;
  std::uint32_t runtimes = 3;     // processes that a GPU carries
  std::uint32_t concurrency = 8;  // functions that run on a GPU at a time
  Duration start{};               // of a runtime: its process, context and libraries
  Duration function_start{};      // in a runtime that is there
  Bytes footprint{};              // of each runtime, of the GPU's memory
  bool link_in_turns = false;     // a copy has the link for itself until it is through
  Duration pinning{};             // of pinned memory for a copy, for each MB of it
  double pool = 1;                // of the peak of its activations, what a run takes
  Duration allocation{};          // whenever a runtime's pool, which then keeps its size, has to grow
  bool keeps_models = true;       // else a function's model goes with the last of its requests
  HandOver hand_over = HandOver::kDirect;

  [[nodiscard]] Duration HandOverTime(Bytes bytes, BytesPerSecond link) const;
  // How long a run reads its inputs, each of so many bytes, which other runs have left. It reads an input that stayed with its
  // runtime in the preset's way of handing over. It reads all others through the host, unless each function has a runtime of
  // its own: then the preset's way leads from one runtime to another.
  [[nodiscard]] Duration ReadingTime(const proto::RunOrder& run, Bytes bytes, BytesPerSecond link) const;
  // One line, for people: what of this was taken from the paper or from measurements.
  [[nodiscard]] std::string Describe() const;
};

struct SandboxPreset {
  std::string name;
  PolicyNames policies;
  Sandbox sandbox;
};
// `infless`, `astraea`, `stream-only`, `streambox`, and `planned+streams`: ours with runtimes per user.
[[nodiscard]] const std::vector<SandboxPreset>& SandboxPresets();

}  // namespace troupe::sim
