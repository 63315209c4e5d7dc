// PROGRAM BUILDER: goes through a model's steps once, in order: infers shapes, folds what is known, makes
// kernels, and puts a reorder wherever a value stands in another layout than its reader wants. A branch whose
// condition is known becomes steps of the program, and so do the trips of a loop that cannot be planned as one
// (its values grow, or the device has no loops) where they are known and few. Every other subgraph becomes a
// program of its own, which a builder inside this one makes (control_steps). A builder makes one program, on one
// thread. gpu/engine uses it, and so do devices that make kernels of their own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/engine/largest_values.hpp"
#include "gpu/engine/program.hpp"

namespace troupe::gpu {

class ProgramBuilder {
 public:
  // Called for each step that is not folded, before its kernel is made. `weights` has a name for each input: that of
  // the model's weight that the input is, or "" for an input that is no weight (packing looks at the inputs here).
  using Observer = std::function<absl::Status(const StepContext&, const Operator&, std::span<const ValueInfo>,
                                              const std::vector<std::string>& weights)>;

  // Makes a step's kernel for another device than the CPU. Every value stands row-major then.
  using Maker = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(
      const Operator&, const StepContext&, std::span<const ValueInfo> in, std::span<const ValueInfo> out)>;

  ProgramBuilder(const proto::Model& model, std::span<const std::byte> weights);
  void MakeWith(Maker maker) { maker_ = std::move(maker); }
  // Makes kernels that cannot run: for what a step's outputs are like.
  void OnlyInfer();
  void Observe(Observer observer) { observer_ = std::move(observer); }
  absl::StatusOr<Program> Build(std::span<const proto::TensorSpec> inputs);
  // Takes the place of Build: infers the outputs of one step from what is known of its inputs.
  absl::StatusOr<std::vector<ValueInfo>> InferStep(const StepContext& context, std::span<const ValueInfo> in);

 private:
  // What all builders of one plan may still do together.
  struct Budget {
    std::uint64_t folded_bytes;
    std::uint64_t inner_steps;  // in subgraphs, which loops may build several times
  };

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
  absl::Status AddTextWeight(const proto::Weight& weight, ValueInfo info);
  absl::Status ReadTextInputs(std::span<const proto::TensorSpec> inputs);
  absl::StatusOr<int> CollectTexts(int elements, proto::TensorSpec& spec);
  // A copy that lives as long as the program.
  const std::byte* KeepBytes(std::span<const std::byte> bytes);
  absl::Status AddStep(const proto::Step& step);
  absl::Status AddInnerSteps(const proto::Subgraph& subgraph);
  absl::Status AddControlStep(Work& work);
  absl::StatusOr<std::vector<int>> Inline(const Work& work, const proto::Subgraph& subgraph,
                                          std::span<const int> given);
  absl::Status DefineOutputs(const Work& work, std::span<const int> ids);
  absl::Status Unroll(const Work& work);
  absl::StatusOr<int> Stack(const std::vector<int>& parts);
  absl::StatusOr<int> AddConstant(proto::DataType type, Shape shape, const std::string& bytes);
  absl::StatusOr<Program> BuildSubgraph(const Work& work, const proto::Subgraph& subgraph,
                                        std::span<const ValueInfo> inputs);
  // The name of the model's weight that a value is; "" for another.
  [[nodiscard]] std::string WeightOf(int id) const;
  // Whether it is a weight in a layout that only its operator reads.
  [[nodiscard]] bool IsPacked(int id) const;
  absl::Status ReadInputs(Work& work);
  absl::Status InferOutputs(Work& work);
  [[nodiscard]] absl::StatusOr<std::vector<ValueInfo>> InferShapes(const Work& work) const;
  void NoteLargest(const Work& work);
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
  // The name of the value that an output of the model is. An output that is also an input gets a value of its own, a copy; any
  // other output is its own value.
  absl::StatusOr<std::string> CopyOfInput(const std::string& output);
  absl::Status AddOutput(const std::string& name);

  const proto::Model& model_;
  std::span<const std::byte> weights_;
  Observer observer_;
  Maker maker_;  // none: the entries' own
  bool infers_only_ = false;
  Program program_;
  std::map<std::string, int, std::less<>> names_;
  LargestValues largest_;
  std::map<std::pair<int, std::string>, int> reordered_;  // value, layout -> its copy in that layout
  std::shared_ptr<Budget> budget_;
  std::vector<std::string> input_weights_;  // of a subgraph: WeightOf each input
  int depth_ = 0;                           // of the subgraph that the steps stand in
};

}  // namespace troupe::gpu
