// OPERATOR: one entry of the operator table: how shapes follow from inputs, and how a kernel is made.
//
// The table is explicit (operator_table.cpp lists every family); there are no self-registering statics, since
// a linker drops them. Adding an operator: write its Infer and Make in the file of its family, add one line
// to that family's array, run the conformance test, regenerate docs/onnx.md.
//
// Infer and Make run off the request path (import, preparation); Kernel::Run runs on it and allocates
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/element_size.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

using Shape = std::vector<std::int64_t>;

// The newest operator set of ONNX's default domain that the table was written for. An operator whose definition
// has not changed since reaches up to it.
inline constexpr int kNewestOpset = 23;

// Of a tensor of texts (BYTES): how many bytes one of them has at most, and all of them together. How long texts are, no
// shape says; a plan reserves room by these bounds.
struct TextBound {
  std::uint64_t longest = 0;
  std::uint64_t total = 0;
};

// What is known of a value while a plan is made: always its type and concrete shape, sometimes its contents.
struct ValueInfo {
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
  Shape shape;
  // Row-major contents when they are known at planning time (weights in row-major layout, folded shape
  // arithmetic); else null. Of BYTES: the elements, as kernels have them (gpu/ops/texts.hpp).
  const std::byte* constant = nullptr;
  // Device layout (gpu/ops/layout.hpp) of a packed weight, or of an activation between kernels that know
  // layouts; empty means row-major.
  std::string layout;
  // The shape is an upper bound: the run tells the real one (NonMaxSuppression, NonZero, dynamic Resize).
  bool bounded = false;
  TextBound texts = {};  // of BYTES
  // Of BYTES: the step writes texts of its own, into the room behind the elements. Without this, they are among those
  // of its inputs.
  bool makes_texts = false;

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] bool absent() const { return type == proto::DATA_TYPE_UNSPECIFIED; }
};

// Bytes of one element as kernels have it: that of BYTES is a pointer to a text (gpu/ops/texts.hpp).
[[nodiscard]] constexpr std::size_t CellSize(proto::DataType type) {
  return type == proto::BYTES ? sizeof(const std::byte*) : proto::ElementSize(type);
}

// A tensor at run time. An absent optional input has data == nullptr and type UNSPECIFIED.
struct TensorView {
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
  Shape shape;  // for a bounded output: filled in by the kernel, at most the planned size
  std::byte* data = nullptr;
};

// Called before each step that a kernel runs inside itself: waits for what the launch has to wait for. An error ends
// the run with it.
using Pause = std::function<absl::Status()>;

// One step made ready for concrete shapes. Not thread-safe; reused for every run of its plan.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Bytes of working memory that Run needs, 64-byte aligned; counted in the plan's activation memory.
  [[nodiscard]] virtual Bytes scratch() const { return Bytes(0); }
  // `in` and `out` have the shapes the kernel was made for (or smaller, for bounded inputs). Several threads
  // may be in it at a time, each with its own tensors and scratch memory.
  virtual absl::Status Run(std::span<const TensorView> in, std::span<TensorView> out,
                           std::byte* scratch) const = 0;
  // Does what Run does. A kernel that runs steps of its own (control flow) asks `pause` before each of them, so that
  // its run can be cut within it.
  virtual absl::Status RunInParts(std::span<const TensorView> in, std::span<TensorView> out,
                                  std::byte* scratch, const Pause& /*pause*/) const {
    return Run(in, out, scratch);
  }
  // The output may share memory with input `i` (element-wise in place). -1: none.
  [[nodiscard]] virtual int in_place_input() const { return -1; }
  // Output 0 has the very bytes of input `i` (Reshape, Identity): the plan may alias the two and skip Run.
  // -1: none.
  [[nodiscard]] virtual int view_of_input() const { return -1; }
  // Device layouts that Run wants its inputs in and leaves its outputs in; empty means row-major. The plan
  // reorders an activation that stands in another layout. Asked only of operators with `any_layout`.
  [[nodiscard]] virtual std::string input_layout(std::size_t) const { return {}; }
  [[nodiscard]] virtual std::string output_layout(std::size_t) const { return {}; }
};

// A weight in the layout a device wants: `data` replaces the row-major bytes, `layout` says how to read them.
struct PackedWeight {
  std::string layout;
  std::vector<std::byte> data;
};

// A step with the context that its attributes are read in.
struct StepContext {
  const proto::Step& step;
  int opset = 17;
  proto::Precision precision = proto::PRECISION_FP32;  // in which constant weights may be packed
  [[nodiscard]] const proto::Attribute* Find(std::string_view name) const;
  [[nodiscard]] std::int64_t Int(std::string_view name, std::int64_t fallback) const;
  [[nodiscard]] float Float(std::string_view name, float fallback) const;
  [[nodiscard]] std::string Text(std::string_view name, std::string_view fallback) const;
  [[nodiscard]] std::vector<std::int64_t> Ints(std::string_view name) const;  // empty when absent
  // An error that names the step: "Conv 'conv1': <what>".
  [[nodiscard]] absl::Status Error(std::string_view what) const;
};

// A set of element types: one bit per proto::DataType.
using TypeSet = std::uint32_t;
[[nodiscard]] constexpr TypeSet TypesOf(std::initializer_list<proto::DataType> types) {
  TypeSet set = 0;
  for (proto::DataType type : types) set |= TypeSet{1} << type;
  return set;
}

struct Operator {
  std::string_view name;  // as in ONNX; of another domain: "ai.onnx.ml.Scaler"
  int min_opset;          // lowest and highest opset this entry implements
  int max_opset;
  // Output types and shapes. Inputs are validated here: a hostile file must get an error, never a crash.
  absl::StatusOr<std::vector<ValueInfo>> (*infer)(const StepContext&, std::span<const ValueInfo> in);
  // A kernel for exactly these inputs. `out` is what infer returned.
  absl::StatusOr<std::unique_ptr<Kernel>> (*make)(const StepContext&, std::span<const ValueInfo> in,
                                                  std::span<const ValueInfo> out);
  // Optional: packs constant input `index` for this device. nullptr, or an empty layout in the answer: stays
  // row-major.
  absl::StatusOr<PackedWeight> (*pack)(const StepContext&, std::span<const ValueInfo> in,
                                       int index) = nullptr;
  // Types of the first input (of the output, where there is none) that this entry declares; read by
  // docs/onnx.md and by the conformance test, which demands a pass for every test within the declaration.
  TypeSet types = TypesOf({proto::FP32});
  // `make` understands ValueInfo::layout of activations and answers Kernel::input_layout and output_layout.
  // Without it every activation arrives row-major, and so does every weight that `pack` left alone.
  bool any_layout = false;
  // `make` honours Step.activation: it is applied last, to output 0. The importer fuses an activation only
  // into entries that say so, and only where that output is FP32 (a Sum: of at least two inputs).
  bool fuses_activation = false;
  // `infer` and `make` take one more input after those of ONNX, added before the activation. Conv: input 3, a
  // tensor of exactly the output's shape (a residual). MatMul: input 2, a constant vector as long as the
  // output's last dimension (a bias). The importer fuses such an Add only into entries that say so.
  bool fuses_addend = false;
  // The kernel itself tells the shape of its bounded output (NonMaxSuppression, NonZero). Without this, a
  // step with a bounded output waits for shape-like inputs that only the run knows (see step_kernel.hpp).
  bool sizes_output = false;
  // Optional: judges attributes that can be wrong in themselves (trees, maps of labels) and that `infer` has no
  // need to read. Import asks it once for every step; `make` must judge them all the same.
  absl::Status (*judge)(const StepContext&) = nullptr;
};

// The entry for `name` at `opset`; null when unsupported.
[[nodiscard]] const Operator* FindOperator(std::string_view name, int opset);
// Every entry, for the generated documentation.
[[nodiscard]] std::vector<const Operator*> AllOperators();

// Product of the dimensions, or an error for a negative dimension or more than 2^40 elements.
[[nodiscard]] absl::StatusOr<std::int64_t> CountElements(std::span<const std::int64_t> shape);
// NumPy broadcasting of two shapes, or an error that shows both.
[[nodiscard]] absl::StatusOr<Shape> BroadcastShapes(std::span<const std::int64_t> a,
                                                    std::span<const std::int64_t> b);
[[nodiscard]] std::string FormatShape(std::span<const std::int64_t> shape);

}  // namespace troupe::gpu
