// PROGRAM BUILDER: goes through a model's steps once, in order: infers shapes, folds what is known, makes
// kernels, and puts a reorder wherever a value stands in another layout than its reader wants. Used once, by
// one thread. For gpu/engine, and for devices that make kernels of their own.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/engine/program.hpp"

namespace troupe::gpu {

class ProgramBuilder {
 public:
  // Called for each step that is not folded, before its kernel is made (packing looks at the inputs here).
  using Observer =
      std::function<absl::Status(const StepContext&, const Operator&, std::span<const ValueInfo>)>;

  // Makes a step's kernel for another device than the CPU. Every value stands row-major then.
  using Maker = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(
      const Operator&, const StepContext&, std::span<const ValueInfo> in, std::span<const ValueInfo> out)>;

  ProgramBuilder(const proto::Model& model, std::span<const std::byte> weights);
  void MakeWith(Maker maker) { maker_ = std::move(maker); }
  void Observe(Observer observer) { observer_ = std::move(observer); }
  absl::StatusOr<Program> Build(std::span<const proto::TensorSpec> inputs);

 private:
  // One step on its way: its context, and its inputs as ids and as what is known of them.
  struct Work {
    StepContext context;
    const Operator* entry = nullptr;
    std::string label;
    std::vector<int> inputs = {};
    std::vector<ValueInfo> infos = {};
    std::vector<ValueInfo> outputs = {};
  };

  absl::Status Define(const std::string& name, int id);
  absl::StatusOr<int> AddValue(ValueInfo info, Place place, std::uint64_t position);
  absl::Status AddInputs(std::span<const proto::TensorSpec> inputs);
  absl::Status AddWeights();
  absl::Status AddStep(const proto::Step& step);
  absl::Status ReadStep(Work& work);
  [[nodiscard]] bool Foldable(const Work& work) const;
  absl::Status Fold(const Work& work);
  absl::Status Emit(Work& work);
  // The entry that stays in device layouts, when inputs stand in one and it takes them; null kernel when not.
  std::unique_ptr<Kernel> TryLayouts(Work& work);
  absl::Status ToRowMajor(Work& work);
  absl::Status ToWanted(Work& work, const Kernel& kernel);
  absl::StatusOr<int> InLayout(int id, const std::string& layout);
  absl::Status AddInstruction(Work& work, std::unique_ptr<Kernel> kernel);
  absl::StatusOr<bool> AddView(const Work& work, const Kernel& kernel);
  absl::Status AddOutputs();

  const proto::Model& model_;
  std::span<const std::byte> weights_;
  Observer observer_;
  Maker maker_;  // none: the entries' own
  Program program_;
  std::map<std::string, int, std::less<>> names_;
  std::map<std::pair<int, std::string>, int> reordered_;  // value, layout -> its copy in that layout
  std::uint64_t folded_bytes_ = 0;
};

}  // namespace troupe::gpu
