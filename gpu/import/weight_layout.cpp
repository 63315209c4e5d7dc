#include "gpu/import/weight_layout.hpp"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "gpu/import/model_check.hpp"

namespace troupe::gpu {
namespace {

constexpr Bytes kAlignment = Bytes(64);

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
    auto [entry, added] = offsets_.try_emplace(Sha256Hex(*constant.data), size_.count());
    weight.set_offset(entry->second);
    if (!added) return absl::OkStatus();
    const Bytes end = size_ + AlignUp(Bytes(constant.data->size()), kAlignment);
    if (end > limit_)
      return absl::ResourceExhaustedError(absl::StrCat("the model's weights exceed the limit of ",
                                                       FormatBytes(limit_), " at tensor '", name, "'"));
    pieces_.push_back({size_.count(), constant.data});
    size_ = end;
    return absl::OkStatus();
  }

  std::vector<std::byte> Write() {
    std::vector<std::byte> blob(size_.count());
    for (Piece& piece : pieces_) {
      if (!piece.data->empty())
        std::memcpy(blob.data() + piece.offset, piece.data->data(), piece.data->size());
      piece.data.reset();
    }
    return blob;
  }

 private:
  struct Piece {
    std::uint64_t offset;
    std::shared_ptr<const std::string> data;
  };
  Bytes limit_;
  Bytes size_;
  absl::flat_hash_map<std::string, std::uint64_t> offsets_;  // by digest of the contents
  std::vector<Piece> pieces_;
};

}  // namespace

absl::StatusOr<ImportedModel> LayOut(Graph graph, const ImportOptions& options) {
  ImportedModel imported;
  proto::Model& model = imported.model;
  model.set_name(std::move(graph.name));
  model.set_onnx_digest(std::move(graph.onnx_digest));
  model.set_opset(graph.opset);
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
  imported.weights = layout.Write();
  model.set_weights_bytes(imported.weights.size());
  Sha256 digest;
  digest.Update(std::span<const std::byte>(imported.weights));
  model.set_weights_digest(digest.Finish());
  return imported;
}

}  // namespace troupe::gpu
