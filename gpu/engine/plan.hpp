// PLAN: a canonical model made ready to run for one set of concrete input shapes on the CPU (the virtual
// GPU's compute).
//
//   model + concrete shapes -> Build (shape inference, folding of shape arithmetic, kernels, activation
//   memory by lifetime) -> Run, any number of times, on several threads at a time, each with memory of its
//   own.
//
// Its maker owns it (a worker's plan cache, the importer, a benchmark). Build is slow (primitives are
// created: 70 ms for a ResNet-50) and stays off the request path; Run allocates nothing that depends on the
// model.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/ops/operator.hpp"
#include "gpu/ops/weights_output.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

// Where a weight may begin in the weights blob of a packed model.
inline constexpr Bytes kWeightAlignment(64);

// The range of a model's weights blob that one step reads: what a swap has to bring before the step may
// start.
struct StepWeights {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;  // offset, length in the weights blob
};

// Where a part of a model's weights blob lies.
struct WeightPlace {
  std::uint64_t offset = 0;  // in the blob
  std::uint64_t length = 0;
  const std::byte* address = nullptr;
};

// Memory for one run. Pointers are 64-byte aligned.
struct PlanBindings {
  const std::byte* weights = nullptr;  // the model's whole weights blob, at the device
  // Instead, when it is not empty: parts of the blob by offset, apart from each other, that hold each weight
  // which a step reads whole while that step runs. Several may have the same address, one after the other.
  std::span<const WeightPlace> places;
  std::byte* activations = nullptr;      // activation_bytes()
  std::vector<const std::byte*> inputs;  // one per model input, in order
  // Their sizes, asked for where an input is BYTES: its texts, one after the other, each behind its length.
  std::vector<Bytes> input_bytes;
  std::vector<std::byte*> outputs;  // one per model output, each output_bytes(i)
  // Called before step i starts; returning an error ends the run with it (cancellation, waiting for weights).
  std::function<absl::Status(std::size_t step)> before_step;
};

class Plan {
 public:
  virtual ~Plan() = default;

  // `inputs` are concrete (no -1) and match the model's declared types and fixed dimensions, or the error
  // says which tensor differs and what was expected. An input of BYTES has room for at least TensorSpec.text_bytes.
  // `weights` is the blob that `model.weights` describes
  // (packed or not); it is read during Build (constants) and may move afterwards: Run takes the address anew.
  // `threads` is the number of OpenMP threads that the primitives are made for.
  static absl::StatusOr<std::unique_ptr<Plan>> Build(const proto::Model& model,
                                                     std::span<const std::byte> weights,
                                                     std::span<const proto::TensorSpec> inputs, int threads);

  [[nodiscard]] virtual Bytes activation_bytes() const = 0;
  // Concrete output types and shapes; for data-dependent outputs the upper bound, and of BYTES how many bytes they have at
  // most (TensorSpec.text_bytes).
  [[nodiscard]] virtual std::span<const proto::TensorSpec> outputs() const = 0;
  [[nodiscard]] virtual Bytes output_bytes(std::size_t i) const = 0;
  [[nodiscard]] virtual std::size_t step_count() const = 0;
  // What one step needs of the activations: the tensors that live while it runs, and its scratch.
  [[nodiscard]] virtual Bytes step_activations(std::size_t) const { return activation_bytes(); }
  // How much of the activations, from their begin, this step and all behind it use.
  [[nodiscard]] virtual Bytes activation_extent(std::size_t) const { return activation_bytes(); }
  [[nodiscard]] virtual const StepWeights& step_weights(std::size_t step) const = 0;
  // Runs every step in order. Returns the real output shapes (equal to outputs() unless they depend on data).
  virtual absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const = 0;
};

// A model whose weights lie in the layout that this machine's kernels want. Derivable from the canonical
// model.
struct PackedModel {
  proto::Model model;              // weights with new offsets and layouts, packed_for set
  std::vector<std::byte> weights;  // empty where they were written to an output
};

// Packs for this machine, using `inputs` (the shapes expected most) to choose layouts; other shapes stay
// correct. The model's precision says what its weights may be packed in. With an `output`, each weight is written when it is
// packed; an error may leave some of them there.
absl::StatusOr<PackedModel> PackModel(const proto::Model& model, std::span<const std::byte> weights,
                                      std::span<const proto::TensorSpec> inputs,
                                      WeightsOutput* output = nullptr);
// Whether the model can be planned for such inputs, as far as shapes tell: nothing is packed.
[[nodiscard]] absl::Status FitsInputs(const proto::Model& model, std::span<const std::byte> weights,
                                      std::span<const proto::TensorSpec> inputs);
// What PackModel packs for on this machine (proto::IsPackedFor): "cpu-avx512/1".
[[nodiscard]] std::string PackTarget();

}  // namespace troupe::gpu
