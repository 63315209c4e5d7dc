#include "gpu/import/weight_layout.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "gpu/import/distinct_contents.hpp"
#include "gpu/import/model_check.hpp"

namespace troupe::gpu {
namespace {

// Where each distinct content lies. Two weights with equal bytes share them, whatever their names and shapes.
class Layout {
 public:
  explicit Layout(Bytes limit) : limit_(limit) {}

  absl::Status Place(const std::string& name, const Constant& constant, proto::Model& model) {
    proto::Weight& weight = *model.add_weights();
    weight.set_name(name);
    weight.set_type(constant.type);
    weight.mutable_shape()->Assign(constant.shape.begin(), constant.shape.end());
    weight.set_length(constant.data->size());
    const std::size_t piece = contents_.Add(*constant.data);
    const bool known = piece < pieces_.size();
    weight.set_offset(known ? pieces_[piece].offset : size_.count());
    if (known) return absl::OkStatus();
    const Bytes end = size_ + AlignUp(Bytes(constant.data->size()), kWeightAlignment);
    if (end > limit_)
      return absl::ResourceExhaustedError(absl::StrCat("the model's weights exceed the limit of ",
                                                       FormatBytes(limit_), " at tensor '", name, "'"));
    pieces_.push_back({constant.data, size_.count()});
    size_ = end;
    return absl::OkStatus();
  }

  // Lets go of each tensor when it is written.
  absl::Status Write(const std::function<absl::Status(std::span<const std::byte>)>& append) {
    constexpr std::array<std::byte, kWeightAlignment.count()> kZeros{};
    for (Piece& piece : pieces_) {
      const std::size_t size = piece.data->size();
      TROUPE_RETURN_IF_ERROR(append(std::as_bytes(std::span(*piece.data))));
      TROUPE_RETURN_IF_ERROR(
          append(std::span(kZeros).first(AlignUp(Bytes(size), kWeightAlignment).count() - size)));
      piece.data.reset();
    }
    return absl::OkStatus();
  }
  [[nodiscard]] Bytes size() const { return size_; }

 private:
  struct Piece {
    TensorBytes data;
    std::uint64_t offset = 0;
  };
  Bytes limit_;
  Bytes size_;
  std::vector<Piece> pieces_;
  DistinctContents contents_;  // the numbers of the pieces
};

// Answers their digest.
absl::StatusOr<std::string> WriteWeights(Layout& layout, const ImportOptions& options,
                                         ImportedModel& imported) {
  Sha256 digest;
  if (options.weights == nullptr) imported.weights.reserve(layout.size().count());
  const auto append = [&](std::span<const std::byte> bytes) -> absl::Status {
    digest.Update(bytes);
    if (options.weights != nullptr) return options.weights->Append(bytes);
    imported.weights.insert(imported.weights.end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  };
  TROUPE_RETURN_IF_ERROR(layout.Write(append));
  if (options.weights != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(imported.written_weights, options.weights->Read());
  }
  return digest.Finish();
}

}  // namespace

absl::StatusOr<ImportedModel> LayOut(Graph graph, const ImportOptions& options) {
  ImportedModel imported;
  proto::Model& model = imported.model;
  model.set_name(std::move(graph.name));
  model.set_onnx_digest(std::move(graph.onnx_digest));
  model.set_opset(graph.opset);
  model.set_precision(options.precision);
  imported.open = std::move(graph.open);
  for (proto::TensorSpec& input : graph.inputs) *model.add_inputs() = std::move(input);
  for (proto::TensorSpec& output : graph.outputs) *model.add_outputs() = std::move(output);
  Layout layout(options.max_weights);
  absl::flat_hash_set<std::string> placed;
  for (proto::Step& step : graph.steps) {
    for (const std::string& input : step.inputs()) {
      auto constant = graph.constants.find(input);
      if (constant == graph.constants.end() || !placed.insert(input).second) continue;
      TROUPE_RETURN_IF_ERROR(layout.Place(input, constant->second, model));
    }
    *model.add_steps() = std::move(step);
  }
  model.set_format_version(FormatOf(model));
  graph.constants.clear();
  model.set_weights_bytes(layout.size().count());
  TROUPE_ASSIGN_OR_RETURN(*model.mutable_weights_digest(), WriteWeights(layout, options, imported));
  return imported;
}

}  // namespace troupe::gpu
