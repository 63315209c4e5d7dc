// A kernel that is a short list of oneDNN primitives over the step's inputs, outputs and scratch memory.
//
// Built once in an operator's make (Add, then SetLayouts), run any number of times, by several threads at a
// time.
// Inputs are never written, not even their padding: weights may be mapped read-only.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.hpp"
#include "gpu/ops/dnnl_layout.hpp"
#include "gpu/ops/frame_pool.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// The one CPU engine of the process.
[[nodiscard]] const dnnl::engine& CpuEngine();
// Attributes every primitive here starts from: scratchpad memory is ours.
[[nodiscard]] dnnl::primitive_attr UserScratchpad(dnnl::post_ops post_ops = {});
// Whether the primitive is one of oneDNN's plain loops, which are correct and slow.
[[nodiscard]] bool IsReference(const dnnl::primitive_desc_base& descriptor);
// A weight with the elements of `constant`, which lies as `plain` says, in the layout that a primitive wants. Without data
// when no layout can express that: it stays row-major.
[[nodiscard]] PackedWeight PackAs(const dnnl::memory::desc& wanted, const dnnl::memory::desc& plain,
                                  const std::byte* constant);
// Appends the activation fused into the step; nothing when there is none, an error for an unknown one.
absl::Status AppendActivation(const StepContext& ctx, dnnl::post_ops& ops);

// A table entry with what it can do beyond its ONNX meaning.
struct Features {
  bool any_layout = false;
  bool activation = false;
  bool addend = false;
};
[[nodiscard]] constexpr Operator With(Features features, Operator entry) {
  entry.any_layout = features.any_layout;
  entry.fuses_activation = features.activation;
  entry.fuses_addend = features.addend;
  return entry;
}

class DnnlProgram final : public Kernel {
 public:
  enum class Place { kInput, kOutput, kScratch };
  struct Operand {
    Place place;
    std::size_t index;  // of the input or output, or the offset in scratch
  };
  struct Argument {
    int id;  // DNNL_ARG_...
    dnnl::memory::desc desc;
    Operand operand;
    bool written = false;
  };

  [[nodiscard]] static Operand Input(std::size_t i) { return {Place::kInput, i}; }
  [[nodiscard]] static Operand Output(std::size_t i) { return {Place::kOutput, i}; }
  // Reserves scratch memory, 64-byte aligned.
  Operand Scratch(std::size_t bytes);
  // Appends a primitive; its own scratchpad is added.
  void Add(const dnnl::primitive& primitive, const dnnl::primitive_desc_base& descriptor,
           std::span<const Argument> arguments);
  // Appends a reorder and returns where its result is: `to` or, when the descriptors are equal, `from`
  // itself.
  Operand Reorder(Operand from, const dnnl::memory::desc& from_desc, const dnnl::memory::desc& to_desc);
  // Appends the conversion of an FP32 tensor to BF16 in scratch memory, and returns where it is; `from` itself, where the
  // primitive reads FP32 as well.
  Operand Converted(Operand from, const dnnl::memory::desc& from_desc, const dnnl::memory::desc& to_desc);
  void ReorderTo(Operand from, const dnnl::memory::desc& from_desc, Operand to,
                 const dnnl::memory::desc& to_desc);
  void SetInputLayout(std::size_t i, std::string layout);
  void SetOutputLayout(std::size_t i, std::string layout);
  void SetInPlace(int input) { in_place_ = input; }
  // Output 0 starts as a copy of `input` (nothing moves when the plan gave both the same memory).
  void StartFrom(int input, std::size_t bytes);

  [[nodiscard]] Bytes scratch() const override { return Bytes(scratch_bytes_); }
  absl::Status Run(std::span<const TensorView> in, std::span<TensorView> out,
                   std::byte* scratch) const override;
  [[nodiscard]] int in_place_input() const override { return in_place_; }
  [[nodiscard]] std::string input_layout(std::size_t i) const override;
  [[nodiscard]] std::string output_layout(std::size_t i) const override;

 private:
  struct Call {
    // Elements of the first operand that are converted to the second one; 0: the primitive is called.
    std::int64_t bfloats = 0;
    dnnl::primitive primitive;
    std::vector<Operand> operands;
    std::vector<int> ids;
    std::vector<dnnl::memory::desc> descs;
  };
  // What one run binds to its tensors.
  struct Frame {
    struct Bound {
      std::vector<dnnl::memory> memories;
      std::vector<dnnl_exec_arg_t> arguments;
      std::vector<std::byte*> addresses;  // of the operands, in this run
    };
    dnnl::stream stream;
    std::vector<Bound> calls;
  };
  [[nodiscard]] std::unique_ptr<Frame> MakeFrame() const;
  static absl::Status Execute(const Call& call, Frame::Bound& bound, const dnnl::stream& stream,
                              std::span<std::byte* const> addresses);

  std::vector<Call> calls_;
  mutable FramePool<Frame> frames_;
  std::size_t scratch_bytes_ = 0;
  std::vector<std::string> input_layouts_;
  std::vector<std::string> output_layouts_;
  int in_place_ = -1;
  std::size_t start_bytes_ = 0;  // of input in_place_, copied to output 0 first; 0: nothing is
};

// Runs `f`, which speaks to oneDNN, and turns its exceptions into errors that name the step.
template <class F>
auto GuardDnnl(const StepContext& ctx, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    return ctx.Error(std::string("not possible on this device: ") + error.what());
  }
}

// Appends the activation to what stands in output 0, in place.
void AddActivation(DnnlProgram& program, const dnnl::memory::desc& desc, const dnnl::post_ops& activation);

// A kernel for an output without elements.
[[nodiscard]] std::unique_ptr<Kernel> EmptyKernel();

}  // namespace troupe::gpu
