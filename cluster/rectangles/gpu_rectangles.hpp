// GPU RECTANGLES: the instances that are booked on one GPU: a rectangle of time and SMs for each, and its part of the
// memory as a third dimension. A value: a plan works on a copy. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cluster/rectangles/free_rectangles.hpp"

namespace troupe::cluster {

using InstanceId = std::uint64_t;

// What an instance of a function takes on a GPU of one kind.
struct InstanceSize {
  Extent extent{};
  Bytes memory{};   // of each instance
  Bytes weights{};  // once for all instances of the function on a GPU (001, section 3.5)
  auto operator<=>(const InstanceSize&) const = default;
};

enum class Spread {
  kAnywhere,  // instances of the function may lie beside each other
  kByNode,    // a node has one of them at most
};

// Null: each node.
using NodeNames = std::shared_ptr<const std::set<std::string>>;

struct InstanceRequest {
  InstanceId id = 0;
  std::string function{};
  std::map<std::string, InstanceSize> by_kind{};  // kinds of GPUs that are not in it cannot run the function
  Spread spread = Spread::kAnywhere;
  NodeNames nodes{};  // on which it may be
};

struct GpuDescription {
  std::string name{};  // in the cluster: "node-1/0"
  std::string node{};
  std::string kind{};
  Bytes memory{};
};

struct Booking {
  std::shared_ptr<const InstanceRequest> request{};  // never null; shared by copies of the GPU
  Rectangle place{};
};

class GpuRectangles {
 public:
  explicit GpuRectangles(GpuDescription gpu) : gpu_(std::move(gpu)) {}

  // Nothing when the request excludes the kind or the node.
  [[nodiscard]] const InstanceSize* SizeOf(const InstanceRequest& request) const;
  [[nodiscard]] bool HasMemoryFor(const InstanceRequest& request) const;
  // The place of the best area fit; nothing when the kind, the node, the memory or the free rectangles do not
  // allow it.
  [[nodiscard]] std::optional<FreeFit> BestFor(const InstanceRequest& request) const;

  // The place has to be free and of the size for this kind, and the memory has to be there.
  void Book(std::shared_ptr<const InstanceRequest> request, const Rectangle& place);
  // What was booked; the instance has to be there.
  Booking Release(InstanceId id);

  [[nodiscard]] const GpuDescription& gpu() const { return gpu_; }
  [[nodiscard]] const std::map<InstanceId, Booking>& bookings() const { return bookings_; }
  [[nodiscard]] const FreeRectangles& free() const { return free_; }
  [[nodiscard]] bool HasFunction(const std::string& function) const;
  [[nodiscard]] std::uint32_t FreeArea() const { return kWholeGpu * kWholeGpu - used_area_; }
  [[nodiscard]] Bytes UsedMemory() const { return memory_; }
  // The part of the GPU that is free and outside its largest free rectangle: 0 to 1.
  [[nodiscard]] double Fragmentation() const;

 private:
  // Of a function, once for all of its instances here. Its versions may differ in size: the larger weights count.
  using Weights = std::pair<std::string_view, Bytes>;
  [[nodiscard]] Bytes WeightsOf(std::string_view function) const;
  void CountMemory();

  GpuDescription gpu_;
  std::map<InstanceId, Booking> bookings_;
  FreeRectangles free_;
  std::uint32_t used_area_ = 0;
  // Of the bookings, whose requests have the names. Every decision asks many GPUs for it.
  Bytes memory_{};
  std::vector<Weights> weights_;
};

// By the GPU's name.
using Gpus = std::map<std::string, GpuRectangles, std::less<>>;

}  // namespace troupe::cluster
