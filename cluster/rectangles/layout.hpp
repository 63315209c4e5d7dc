// LAYOUT: what GPUs would look like after changes that nothing has carried out yet. It copies a GPU when the GPU is
// changed for the first time; the GPUs below have to outlive it. Pure.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/rectangles/gpu_rectangles.hpp"

namespace troupe::cluster {

// An instance that gets another place: on its GPU, or on another one.
struct Move {
  InstanceId instance = 0;
  std::string from{}, to{};  // GPUs
  Rectangle place{};         // on `to`
  bool operator==(const Move&) const = default;
};

class Layout {
 public:
  explicit Layout(const Gpus& gpus) : gpus_(gpus) {}

  [[nodiscard]] const GpuRectangles& At(const std::string& gpu) const;
  // What can be changed: a copy.
  GpuRectangles& Edit(const std::string& gpu);

  // Whether the function's instances may lie on this GPU's node by the function's spread.
  [[nodiscard]] bool SpreadAllows(const InstanceRequest& request, const std::string& gpu) const;

  // Of the instances that lie elsewhere than in the GPUs below; those that are new there are none.
  [[nodiscard]] std::vector<Move> Moves() const;
  [[nodiscard]] const std::map<std::string, GpuRectangles>& changed() const { return changed_; }

 private:
  std::reference_wrapper<const Gpus> gpus_;
  std::map<std::string, GpuRectangles> changed_;
};

}  // namespace troupe::cluster
