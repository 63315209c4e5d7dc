#include "tests/conformance/run_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/onnx_reader.hpp"
#include "gpu/import/sequences.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/text_room.hpp"

namespace troupe::gpu::conformance {
namespace {

constexpr std::size_t kGuard = 64;  // bytes behind every buffer that a run must leave alone
constexpr std::byte kGuardByte{0xa5};

// Memory of exactly the size that was promised, aligned as PlanBindings wants it.
class Buffer {
 public:
  explicit Buffer(std::size_t size)
      : size_(size), data_(static_cast<std::byte*>(::operator new[](size + kGuard, std::align_val_t{64}))) {
    std::fill_n(data_, size + kGuard, kGuardByte);
  }
  Buffer(Buffer&& other) noexcept : size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  ~Buffer() { ::operator delete[](data_, std::align_val_t{64}); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] bool intact() const {
    return std::all_of(data_ + size_, data_ + size_ + kGuard, [](std::byte b) { return b == kGuardByte; });
  }

 private:
  std::size_t size_;
  std::byte* data_;
};

std::vector<double> AsDoubles(proto::DataType type, const std::byte* data, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  ConvertElements(type, data, proto::FP64, reinterpret_cast<std::byte*>(values.data()), count);
  return values;
}

absl::Status Compare(const Constant& expected, const proto::TensorSpec& spec, const std::byte* data,
                     const RunOptions& options, const std::string& where) {
  const Shape shape(spec.shape().begin(), spec.shape().end());
  if (spec.type() != expected.type || shape != expected.shape) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, " is ", proto::DataType_Name(spec.type()), FormatShape(shape), ", expected ",
                     proto::DataType_Name(expected.type), FormatShape(expected.shape)));
  }
  std::int64_t count = 1;
  for (std::int64_t dim : shape) count *= dim;
  if (count == 0) return absl::OkStatus();
  const auto* right = reinterpret_cast<const std::byte*>(expected.data->data());
  if (spec.type() == proto::BYTES) {
    const bool same =
        spec.text_bytes() == expected.data->size() && std::equal(data, data + spec.text_bytes(), right);
    return same ? absl::OkStatus() : absl::FailedPreconditionError(absl::StrCat(where, " has other texts"));
  }
  const std::size_t size = ElementSize(spec.type());
  const bool floats = spec.type() == proto::FP32 || spec.type() == proto::FP64;
  const bool halves = spec.type() == proto::FP16 || spec.type() == proto::BF16;
  const double rtol = halves ? 8e-3 : options.rtol;
  const double atol = halves ? 1e-3 : options.atol;
  const auto a = AsDoubles(spec.type(), data, count);
  const auto b = AsDoubles(spec.type(), right, count);
  double largest = 0;
  for (const double value : b) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  for (std::size_t i = 0; i < a.size(); ++i) {
    bool equal = std::memcmp(data + i * size, right + i * size, size) == 0;
    if (floats || halves) {
      equal = equal || a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
              std::abs(a[i] - b[i]) <= atol + rtol * std::abs(b[i]) + options.of_largest * largest;
    }
    if (!equal) {
      return absl::FailedPreconditionError(
          absl::StrCat(where, " element ", i, " of ", count, " is ", a[i], ", expected ", b[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CompareAll(const Plan& plan, const std::vector<proto::TensorSpec>& specs, const DataSet& set,
                        const std::vector<Buffer>& outputs, const RunOptions& options) {
  if (specs.size() != set.outputs.size())
    return absl::FailedPreconditionError("the number of outputs differs");
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::string where = absl::StrCat("output ", i, " '", specs[i].name(), "'");
    if (!outputs[i].intact())
      return absl::FailedPreconditionError(absl::StrCat(where, ": written beyond its end"));
    TROUPE_RETURN_IF_ERROR(Compare(set.outputs[i], specs[i], outputs[i].data(), options, where));
    if (plan.output_bytes(i).count() < set.outputs[i].data->size()) {
      return absl::FailedPreconditionError(absl::StrCat(where, ": larger than planned"));
    }
  }
  return absl::OkStatus();
}

// NumPy, which wrote the data, has no BF16: the files hold its bits as UINT16.
std::vector<Constant> WithModelTypes(std::vector<Constant> tensors,
                                     const google::protobuf::RepeatedPtrField<proto::TensorSpec>& specs) {
  for (std::size_t i = 0; i < tensors.size() && static_cast<int>(i) < specs.size(); ++i) {
    const proto::DataType declared = specs[static_cast<int>(i)].type();
    if (tensors[i].type == proto::UINT16 && declared == proto::BF16) tensors[i].type = declared;
  }
  return tensors;
}

absl::Status RunSet(const ImportedModel& model, DataSet set, const RunOptions& options) {
  ImportedModel imported = model;
  set.inputs = WithModelTypes(std::move(set.inputs), imported.model.inputs());
  set.outputs = WithModelTypes(std::move(set.outputs), imported.model.outputs());
  const std::vector<Constant>& given = set.inputs;
  std::vector<proto::TensorSpec> specs;
  for (std::size_t i = 0; i < given.size(); ++i) {
    proto::TensorSpec spec = imported.model.inputs(static_cast<int>(i));
    spec.set_type(given[i].type);
    spec.mutable_shape()->Assign(given[i].shape.begin(), given[i].shape.end());
    if (spec.type() == proto::BYTES) spec.set_text_bytes(given[i].data->size());
    specs.push_back(std::move(spec));
  }
  imported.model.set_precision(options.precision);
  if (options.pack) {
    TROUPE_ASSIGN_OR_RETURN(PackedModel packed, PackModel(imported.model, imported.weights, specs));
    imported.model = std::move(packed.model);
    imported.weights = std::move(packed.weights);
  }
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan,
                          options.make(imported.model, imported.weights, specs, 1));
  PlanBindings bindings;
  Buffer weights(imported.weights.size());
  std::copy(imported.weights.begin(), imported.weights.end(), weights.data());
  const Buffer activations(plan->activation_bytes().count());
  bindings.weights = weights.data();
  bindings.activations = activations.data();
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  for (const Constant& input : given) {
    bindings.input_bytes.emplace_back(input.data->size());
    inputs.emplace_back(input.data->size());
    std::memcpy(inputs.back().data(), input.data->data(), input.data->size());
    bindings.inputs.push_back(inputs.back().data());
  }
  for (std::size_t i = 0; i < plan->outputs().size(); ++i) {
    outputs.emplace_back(plan->output_bytes(i).count());
    bindings.outputs.push_back(outputs.back().data());
  }
  for (int run = 0; run < 2; ++run) {  // a plan is run many times: the second must not see the first
    TROUPE_ASSIGN_OR_RETURN(const std::vector<proto::TensorSpec> real, plan->Run(bindings));
    TROUPE_RETURN_IF_ERROR(CompareAll(*plan, real, set, outputs, options));
  }
  if (!activations.intact()) return absl::FailedPreconditionError("activations: written beyond their end");
  return absl::OkStatus();
}

// Whether the first operator's first input is a number that decides the shape, and not what it works on. Where a Loop
// gathers, all numbers may decide how often.
bool IsMadeFromNumbers(const onnx::GraphProto& graph) {
  const std::string& op = graph.node(0).op_type();
  return op == "ConstantOfShape" || op == "Range" || op == "MelWeightMatrix" ||
         absl::EndsWith(op, "Window") ||
         std::any_of(graph.node().begin(), graph.node().end(),
                     [](const onnx::NodeProto& node) { return node.op_type() == "Loop"; });
}

// Turns the inputs that may decide a shape (short lists, and not what the first operator works on) into
// initialisers.
void MakeConstant(onnx::ModelProto& model, DataSet& set, const std::filesystem::path& folder) {
  const std::vector<std::string> names = InputNames(model.graph());
  std::vector<Constant> kept;
  for (std::size_t i = 0; i < set.inputs.size() && i < names.size(); ++i) {
    const Constant& input = set.inputs[i];
    const bool first = model.graph().node_size() > 0 && model.graph().node(0).input_size() > 0 &&
                       model.graph().node(0).input(0) == names[i];
    if (input.shape.size() > 1 || (first && !IsMadeFromNumbers(model.graph()))) {
      kept.push_back(input);
      continue;
    }
    onnx::TensorProto tensor;
    auto file = folder / absl::StrCat("input_", i, ".pb");
    std::FILE* handle = std::fopen(file.c_str(), "rb");
    if (handle == nullptr) continue;
    std::string bytes(std::filesystem::file_size(file), '\0');
    const std::size_t read = std::fread(bytes.data(), 1, bytes.size(), handle);
    std::fclose(handle);
    if (read != bytes.size() || !tensor.ParseFromString(bytes)) continue;
    tensor.set_name(names[i]);
    *model.mutable_graph()->add_initializer() = std::move(tensor);
  }
  set.inputs = std::move(kept);
}

// No step runs on a sequence: the importer's passes write steps on its tensors.
bool HasSequences(const onnx::ModelProto& model) {
  return std::ranges::any_of(model.graph().node(), [](const onnx::NodeProto& node) {
    return IsSequenceOperator(node.op_type(), kMaxOpset);
  });
}

absl::StatusOr<ImportedModel> Import(const onnx::ModelProto& model, const RunOptions& options) {
  const std::string bytes = model.SerializeAsString();
  if (options.simplify || HasSequences(model)) return ImportOnnx(std::as_bytes(std::span(bytes)), {});
  return ReadOnnx(std::as_bytes(std::span(bytes)), {});
}

}  // namespace

absl::Status RunCase(const OnnxCase& test, RunNotes& notes, const RunOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<DataSet> sets, LoadDataSets(test));
  if (sets.empty()) return absl::NotFoundError("the case has no data");
  const absl::StatusOr<ImportedModel> imported = Import(test.model, options);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (imported.ok() && static_cast<int>(sets[i].inputs.size()) != imported->model.inputs_size())
      return absl::FailedPreconditionError("the number of inputs differs");
    absl::Status status = imported.ok() ? RunSet(*imported, sets[i], options) : imported.status();
    if (absl::StrContains(status.message(), "must be known when the plan is made") ||
        absl::StrContains(status.message(), "whose sequence only a run knows")) {
      notes.constant_shapes = true;
      onnx::ModelProto model = test.model;
      DataSet set = sets[i];
      MakeConstant(model, set, test.folder / absl::StrCat("test_data_set_", i));
      TROUPE_ASSIGN_OR_RETURN(const ImportedModel constant, Import(model, options));
      status = RunSet(constant, std::move(set), options);
    }
    TROUPE_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status RunOnZeros(const ImportedModel& model) {
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  std::vector<proto::TensorSpec> specs(model.model.inputs().begin(), model.model.inputs().end());
  std::vector<Buffer> buffers;
  PlanBindings bindings;
  std::size_t bytes = 0;
  const auto add = [&](std::size_t size) {
    std::fill_n(buffers.emplace_back(size).data(), size, std::byte{});
    return buffers.back().data();
  };
  for (proto::TensorSpec& spec : specs) {
    for (auto& dim : *spec.mutable_shape()) dim = dim < 0 ? 3 : dim;
    TROUPE_ASSIGN_OR_RETURN(const std::int64_t count,
                            CountElements(Shape(spec.shape().begin(), spec.shape().end())));
    // Zeros are the lengths of empty texts.
    const std::size_t element = spec.type() == proto::BYTES ? kTextLength : ElementSize(spec.type());
    bytes += static_cast<std::size_t>(count) * element;
    if (bytes > kMostBytes) return absl::ResourceExhaustedError("the inputs are large");
    bindings.input_bytes.emplace_back(static_cast<std::size_t>(count) * element);
    bindings.inputs.push_back(add(static_cast<std::size_t>(count) * element));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan,
                          Plan::Build(model.model, model.weights, specs, 1));
  bytes = plan->activation_bytes().count();
  for (std::size_t i = 0; i < plan->outputs().size(); ++i) bytes += plan->output_bytes(i).count();
  if (bytes > kMostBytes) return absl::ResourceExhaustedError("the run is large");
  for (std::size_t i = 0; i < plan->outputs().size(); ++i)
    bindings.outputs.push_back(add(plan->output_bytes(i).count()));
  bindings.activations = add(plan->activation_bytes().count());
  std::byte* const weights = add(model.weights.size());
  std::copy(model.weights.begin(), model.weights.end(), weights);
  bindings.weights = weights;
  TROUPE_RETURN_IF_ERROR(plan->Run(bindings).status());
  for (const Buffer& buffer : buffers)
    if (!buffer.intact()) return absl::InternalError("a run wrote beyond its memory");
  return absl::OkStatus();
}

}  // namespace troupe::gpu::conformance
