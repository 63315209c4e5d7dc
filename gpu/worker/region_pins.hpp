// REGION PINS: which of the host region a real GPU has registered, so that its copies run at full speed.
//
//   wanted -> registered (on a thread, in chunks) -> given back by the daemon, or the region is let go of
//
// A registration is of the pages that are there when it is made, and costs a tenth of a second and more for a
// GiB. So models are registered when orders name them, the most urgent first, and a copy that comes before is
// slower and just as right. Pages that the daemon gave back are exchanged: what was registered of them is let go
// of before an order that names the range is carried out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/worker/host_model.hpp"
#include "transport/host_region.hpp"

namespace troupe::gpu {

// Thread-safe. Lets go of everything in its destructor: no copy reads the region any more.
class RegionPins {
 public:
  static constexpr Bytes kChunk = MiB(64);  // of one registration
  // The device's, with the same contract.
  struct Calls {
    std::function<absl::Status(std::span<const std::byte>)> add;
    std::function<void(std::span<const std::byte>)> remove;
    // Once at most, on a thread of its own: nothing more is registered.
    std::function<void(const absl::Status& why)> refused;
  };
  RegionPins(Calls calls, transport::HostRegionView region);
  ~RegionPins();
  RegionPins(const RegionPins&) = delete;
  RegionPins& operator=(const RegionPins&) = delete;
  // The region, for as long as anything reads it.
  [[nodiscard]] static RegionPtr RegionOf(std::shared_ptr<RegionPins> pins);

  // An order names these bytes of the region. What is registered of them from now on are the pages that are
  // there. `urgent`: before all that is wanted already.
  void Want(std::span<const std::byte> bytes, bool urgent);
  struct State {
    Bytes registered;
    Bytes wanted;  // and not registered yet
  };
  [[nodiscard]] State state() const;

 private:
  using Range = std::span<const std::byte>;
  void Serve();
  void DropExchanged(std::unique_lock<std::mutex>& lock);
  // The next chunk to register; wanted ranges that are registered are forgotten on the way.
  [[nodiscard]] std::optional<Range> NextChunk();
  void Register(Range chunk, std::unique_lock<std::mutex>& lock);

  const Calls calls_;
  const transport::HostRegionView region_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t mark_;                              // guarded by mutex_, as all below
  std::map<const std::byte*, std::size_t> pinned_;  // chunks, apart from each other
  std::deque<Range> wanted_;
  std::optional<Range> registering_;
  bool doomed_ = false;  // the pages of `registering_` were exchanged
  bool given_up_ = false;
  bool stopping_ = false;
  std::thread thread_;  // ends first
};

}  // namespace troupe::gpu
