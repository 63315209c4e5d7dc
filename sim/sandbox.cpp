#include "sim/sandbox.hpp"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace troupe::sim {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// 004: Table 1, sections 3.1, 3.3 (C1), 7.1 and 9.1.
constexpr Duration kRuntimeStart = milliseconds(5800);
constexpr Duration kFunctionStart = milliseconds(5);
constexpr Bytes kRuntimeFootprint(1'500'000'000);
constexpr Duration kPinningOfAMegabyte = milliseconds(1);  // 200 ms for 200 MB
constexpr Duration kAllocation = milliseconds(30);         // of all that a run takes, in advance
constexpr std::uint32_t kMostProcesses = 8;                // of PyTorch on 16 GB
constexpr std::uint32_t kMostStreams = 20;
constexpr std::uint32_t kWarmRuntimes = 3;
constexpr double kResilientPool = 0.09;  // of a static one (Fig. 15)
// Fig. 16 has ratios only: a copy through the host is reckoned from the link and from memory that a store
// copies twice; opening a handle and passing an address are what the ratios leave of 125 MB's.
constexpr BytesPerSecond kHostMemory{10e9};
constexpr double kHandleOfHost = 0.22;
constexpr double kDirectOfHost = 0.06;

Duration ThroughHost(Bytes bytes, BytesPerSecond link) {
  return 2 * TransferTime(bytes, link) + 2 * TransferTime(bytes, kHostMemory);
}

// A GPU here is granted twice as many requests as its streams run, and those share it evenly: `locality`
// would give a burst of one workflow to one node whole, before it gave another a second copy.
PolicyNames Ours() {
  PolicyNames names;
  names.routing = "bounded-locality";
  return names;
}

PolicyNames InOrder() {
  return *FindPreset("in-order");
}

Sandbox PerFunction(HandOver hand_over) {
  return {.isolation = proto::ISOLATION_FUNCTION,
          .runtimes = kMostProcesses,
          .concurrency = kMostProcesses,
          .start = kRuntimeStart,
          .function_start = {},
          .footprint = kRuntimeFootprint,
          .pinning = kPinningOfAMegabyte,
          .allocation = kAllocation,
          .hand_over = hand_over};
}

// What is kept alive is the runtime (section 8); layers are there while a request has still to pass them
// (5.1).
Sandbox PerUser() {
  return {.isolation = proto::ISOLATION_TENANT,
          .runtimes = kWarmRuntimes,
          .concurrency = kMostStreams,
          .start = kRuntimeStart,
          .function_start = kFunctionStart,
          .footprint = kRuntimeFootprint,
          .pool = kResilientPool,
          .keeps_models = false,
          .hand_over = HandOver::kDirect};
}

Sandbox OursPerUser() {
  Sandbox sandbox = PerUser();
  sandbox.keeps_models = true;
  return sandbox;
}

Sandbox StreamOnly() {
  Sandbox sandbox = PerUser();
  sandbox.link_in_turns = true;
  sandbox.pinning = kPinningOfAMegabyte;
  sandbox.pool = 1;
  sandbox.allocation = kAllocation;
  sandbox.hand_over = HandOver::kHandle;
  return sandbox;
}

}  // namespace

Duration Sandbox::HandOverTime(Bytes bytes, BytesPerSecond link) const {
  const Duration host = ThroughHost(bytes, link);
  switch (hand_over) {
    case HandOver::kHost:
      return host;
    case HandOver::kHandle:
      return FromSeconds(kHandleOfHost * ToSeconds(host));
    case HandOver::kDirect:
      break;
  }
  return FromSeconds(kDirectOfHost * ToSeconds(host));
}

Duration Sandbox::ReadingTime(const proto::RunOrder& run, Bytes bytes, BytesPerSecond link) const {
  Duration sum{};
  for (const proto::Tensor& input : run.inputs()) {
    const bool by_preset = input.data().has_kept() || isolation == proto::ISOLATION_FUNCTION;
    sum += by_preset ? HandOverTime(bytes, link) : ThroughHost(bytes, link);
  }
  return sum;
}

std::string Sandbox::Describe() const {
  return absl::StrFormat(
      "%d runtimes of %s, %s to start, for each %s; %d runs at a time; a function starts in %s, its model "
      "%s; "
      "a run takes %.2f of its activations, %s whenever the pool has to grow; the link %s, %s to pin a MB",
      runtimes, FormatBytes(footprint), FormatDuration(start),
      isolation == proto::ISOLATION_FUNCTION ? "function" : "user", concurrency,
      FormatDuration(function_start), keeps_models ? "stays" : "goes with the last of its requests", pool,
      FormatDuration(allocation), link_in_turns ? "in turns" : "shared", FormatDuration(pinning));
}

const std::vector<SandboxPreset>& SandboxPresets() {
  static const std::vector<SandboxPreset> kPresets = {{"infless", InOrder(), PerFunction(HandOver::kHost)},
                                                      {"astraea", InOrder(), PerFunction(HandOver::kHandle)},
                                                      {"stream-only", InOrder(), StreamOnly()},
                                                      {"streambox", InOrder(), PerUser()},
                                                      {"planned+streams", Ours(), OursPerUser()}};
  return kPresets;
}

}  // namespace troupe::sim
