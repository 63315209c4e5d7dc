// RECTANGLE TABLE: the GPUs of a cluster and which instance has which rectangle of which GPU (001, section 3.4.2). Owned
// by what decides about instances, on one thread. Pure: what it changes here is a decision that is still to be carried
// out.
//
//   absent -> (Place) booked <-> (Resize, Place of another one, Replan) booked elsewhere -> (Release, RemoveGpu) absent
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/rectangles/packing_policy.hpp"
#include "cluster/rectangles/replan.hpp"

namespace troupe::cluster {

struct Placed {
  std::string gpu{};
  Rectangle place{};
  std::vector<Move> moves{};  // of other instances, which have to be carried out together with it
};

enum class ResizeTo {
  kAnyGpu,
  kSameGpu,  // without a move of another instance either
};

class RectangleTable {
 public:
  explicit RectangleTable(PackingPolicy policy = {}, ReplanLimits limits = {})
      : policy_(policy), limits_(limits) {}
  RectangleTable(RectangleTable&&) = default;

  // AlreadyExists: a GPU of this name is here. InvalidArgument: it has no name, node or memory.
  [[nodiscard]] absl::Status AddGpu(GpuDescription gpu);
  // The instances that were on it, ascending; they have no rectangle any more. Nothing when it is not here.
  std::vector<InstanceId> RemoveGpu(const std::string& gpu);

  // From now on no instance moves so that another one fits.
  void ForbidMoves() { moves_ = false; }

  // GPUs with instances come before empty ones. InvalidArgument: a size is not possible; AlreadyExists: the instance has
  // a rectangle; ResourceExhausted: it fits on no GPU, and nothing has changed.
  [[nodiscard]] absl::StatusOr<Placed> Place(InstanceRequest request);
  // Books a rectangle that it had before: the part of a plan that was stored. NotFound: the GPU is not here;
  // FailedPrecondition: the rectangle is not free, or not of the request's size for that GPU, or there is too little
  // memory; others as of Place.
  [[nodiscard]] absl::Status PlaceAt(InstanceRequest request, const std::string& gpu, const Rectangle& place);
  // NotFound: it has no rectangle.
  [[nodiscard]] absl::Status Release(InstanceId id);
  // Another size for an instance: at its place if it can stay there, else on its GPU, else, unless it has to stay on that
  // GPU, where Place finds room. Errors as of Place, and NotFound; with an error the instance is as before.
  [[nodiscard]] absl::StatusOr<Placed> Resize(InstanceId id,
                                              const std::map<std::string, InstanceSize>& by_kind,
                                              ResizeTo to = ResizeTo::kAnyGpu);
  // The moves of one plan that empties a GPU, or else mends a fragmented one; they have been booked. None under policies
  // that do not move instances.
  [[nodiscard]] std::vector<Move> Replan();

  // Null when it has no rectangle.
  [[nodiscard]] const Booking* Find(InstanceId id) const;
  [[nodiscard]] const GpuRectangles* GpuWith(InstanceId id) const;
  // "": it has no rectangle.
  [[nodiscard]] std::string GpuOf(InstanceId id) const;
  [[nodiscard]] const Gpus& gpus() const { return gpus_; }
  [[nodiscard]] std::size_t InUse() const;  // GPUs with instances
  // Whether a GPU of any kind has a free rectangle of this size. In a full cluster many functions want more, and each is
  // answered without a look at every GPU.
  [[nodiscard]] bool IsFreeAnywhere(const Extent& extent) const;
  [[nodiscard]] std::size_t size() const { return where_.size(); }

 private:
  using Request = std::shared_ptr<const InstanceRequest>;
  enum class Among { kInUse, kEmpty };

  [[nodiscard]] absl::Status Check(const InstanceRequest& request) const;
  [[nodiscard]] absl::StatusOr<Placed> PlaceChecked(const Request& request);
  [[nodiscard]] std::optional<Placed> BestFit(const Request& request, Among among) const;
  [[nodiscard]] absl::Status NoRoom(const InstanceRequest& request) const;
  void Book(const Request& request, const Placed& placed);
  std::vector<Move> Adopt(const Layout& layout);
  // The GPUs of the nodes on which the request may be.
  [[nodiscard]] std::vector<const GpuRectangles*> AllowedFor(const InstanceRequest& request) const;
  // A rectangle may be free now that was not.
  void SpaceFreed() { nowhere_.clear(); }

  PackingPolicy policy_;
  ReplanLimits limits_;
  bool moves_ = true;
  Gpus gpus_;
  std::map<std::string, std::vector<const GpuRectangles*>> of_node_;  // in `gpus_`
  std::map<InstanceId, GpuRectangles*> where_;                        // in `gpus_`
  mutable std::set<Extent> nowhere_;  // sizes that were found free on no GPU since space was freed
};

}  // namespace troupe::cluster
