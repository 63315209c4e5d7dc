// The shares of a GPU's SMs as green contexts: made once, since what was split off cannot be split again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/share_ladder.hpp"
#include "gpu/cuda/context.hpp"

namespace troupe::gpu::cuda {

// One split of the GPU into units; a green context, with a stream, for each place that a share of the ladder
// can have, made of the units that lie there. Launches on places apart from each other have SMs of their own,
// while the L2 cache and the memory's bandwidth stay common. Thread-safe once it is made; outlives the
// streams that use it.
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
  // On which launches with this share go; null: on any, the share is the whole GPU.
  [[nodiscard]] CUstream StreamOf(const SmShare& share) const;
  // Calls `visit(stream, sms)` for each stream.
  template <class Visit>
  void ForEach(Visit visit) const {
    for (const auto& [place, made] : places_) visit(made.stream, place.second * ladder_.unit());
  }

 private:
  struct Place {
    CUgreenCtx context = nullptr;
    CUstream stream = nullptr;
  };
  explicit GreenContexts(Context& context) : context_(context) {}
  absl::Status Split();
  absl::Status MakePlace(std::uint32_t begin, std::uint32_t units);
  absl::Status Probe() const;
  void Clear();

  Context& context_;
  ShareLadder ladder_;
  std::string remark_;
  std::vector<CUdevResource> units_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Place> places_;  // by first unit and number of them
};

}  // namespace troupe::gpu::cuda
