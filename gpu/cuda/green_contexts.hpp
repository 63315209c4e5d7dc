// The shares of a GPU's SMs as green contexts: split once, since what was split off cannot be split again, and each
// made when a launch needs it first.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/share_ladder.hpp"
#include "gpu/cuda/context.hpp"

namespace troupe::gpu::cuda {

// One split of the GPU into units; a green context, with a stream, for each place that a share of the ladder
// can have, made of the units that lie there. Launches on places apart from each other have SMs of their own,
// while the L2 cache and the memory's bandwidth stay common. Each place costs memory and time, and most are never
// used. Thread-safe; outlives the streams that use it.
class GreenContexts {
 public:
  // Where the driver has none, or refuses some of them, the ladder is the whole GPU alone, and remark() says
  // why.
  static std::unique_ptr<GreenContexts> Make(Context& context);
  ~GreenContexts();
  GreenContexts(const GreenContexts&) = delete;
  GreenContexts& operator=(const GreenContexts&) = delete;

  [[nodiscard]] const ShareLadder& ladder() const { return ladder_; }
  [[nodiscard]] const std::string& remark() const { return remark_; }
  struct Place {
    CUgreenCtx green = nullptr;
    CUcontext context = nullptr;  // the green one, as calls take it
    CUstream stream = nullptr;
    std::uint32_t sms = 0;
  };
  // On which launches with this share go; a stream of null: on any, the share is the whole GPU. It lasts as long
  // as this object.
  absl::StatusOr<Place> PlaceOf(const SmShare& share);
  // Calls `made` for each place that is there, and from now on for each that is made, before it is used.
  void Watch(std::function<void(const Place&)> made);

 private:
  explicit GreenContexts(Context& context) : context_(context) {}
  absl::Status Split();
  absl::Status MakePlace(std::uint32_t begin, std::uint32_t units, Place& place) const;
  absl::Status Probe(const Place& place) const;
  void Destroy(const Place& place) const;
  void Clear();

  Context& context_;
  ShareLadder ladder_;
  std::string remark_;
  std::vector<CUdevResource> units_;
  std::mutex mutex_;
  std::function<void(const Place&)> made_;  // guarded by mutex_
  std::map<std::pair<std::uint32_t, std::uint32_t>, Place>
      places_;  // guarded by mutex_; by first unit and number of them
};

}  // namespace troupe::gpu::cuda
