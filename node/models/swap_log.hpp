// SWAP LOG: how the swaps of a node went: counts since its start, and the latest swaps of each GPU.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "proto/admin.pb.h"

namespace troupe::node {

// Where the model of a dispatched request was. kAhead: it came before any request asked for it.
enum class ModelWas { kResident, kLoading, kHost, kPeer, kDisk, kBroadcast, kAhead };
[[nodiscard]] const char* Name(ModelWas was);

// Why a model left a GPU, as statistics name it.
enum class EvictedAs { kForgotten, kHeavy, kLight, kReplicated };
[[nodiscard]] const char* Name(EvictedAs reason);

struct SwapDone {
  std::string model{};                // of the copy, which may have gone when people read this
  ModelWas source = ModelWas::kHost;  // host, peer, broadcast, ahead, or disk: through the host region
  std::uint32_t peer = 0;             // the GPU that it comes from, then
  Bytes bytes{};
  Duration took{};
  Time ended{};
  std::vector<std::string> evicted{};
  absl::Status status{};
};

// One line for people: "GPU 0: 'a' from host, 97.5 MiB in 8.2 ms; 'b', 'c' went for it". `functions` gives
// the words for a model.
[[nodiscard]] std::string SwapText(std::uint32_t gpu, const SwapDone& swap,
                                   const std::function<std::string(const std::string&)>& functions);

class SwapLog {
 public:
  static constexpr std::size_t kLatest = 16;  // kept of each GPU
  static constexpr std::array<double, 12> kBounds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                                     0.1,   0.2,   0.5,   1,    2,    5};  // seconds

  void Dispatched(ModelWas was) { ++sources_[static_cast<std::size_t>(was)]; }
  void Evicted(EvictedAs reason) { ++evictions_[static_cast<std::size_t>(reason)]; }
  void Swapped(std::uint32_t gpu, SwapDone swap);

  void AddTo(proto::SwapStatistics& statistics) const;
  // The latest first; ages at `now`, models without their functions.
  [[nodiscard]] std::vector<proto::SwapRecord> Latest(std::uint32_t gpu, Time now) const;

 private:
  std::array<std::uint64_t, 7> sources_{};
  std::array<std::uint64_t, 4> evictions_{};
  std::map<std::uint32_t, std::deque<SwapDone>> latest_;
  std::array<std::uint64_t, kBounds.size()> below_{};
  std::uint64_t swaps_ = 0, failed_ = 0;
  Bytes bytes_;
  Duration took_{};
};

}  // namespace troupe::node
