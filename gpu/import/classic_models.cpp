#include "gpu/import/classic_models.hpp"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "onnx/onnx_pb.h"

namespace troupe::gpu {
namespace {

bool IsClassic(const onnx::NodeProto& node) {
  return node.domain() == kClassicDomain;
}

// The length of an attribute that is a list of texts or of whole numbers.
int ListSize(const onnx::NodeProto& node, const char* name) {
  for (const onnx::AttributeProto& attribute : node.attribute())
    if (attribute.name() == name) return std::max(attribute.strings_size(), attribute.ints_size());
  return 0;
}

class Adapter {
 public:
  explicit Adapter(onnx::GraphProto& graph) : graph_(graph) {
    for (int i = 0; i < graph.output_size(); ++i) outputs_[graph.output(i).name()] = i;
  }

  void Run() {
    for (onnx::NodeProto& node : *graph_.mutable_node())
      if (node.output_size() > 0 && IsClassic(node) && node.op_type() == "ZipMap") AdaptZipMap(node);
  }

 private:
  void AdaptZipMap(onnx::NodeProto& node) {
    const auto output = outputs_.find(node.output(0));
    if (output == outputs_.end()) return;
    onnx::ValueInfoProto& values = *graph_.mutable_output(output->second);
    if (!values.type().has_sequence_type()) return;
    values.mutable_type()->Clear();
    values.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
    const bool texts = ListSize(node, "classlabels_strings") > 0;
    if ((ListSize(node, "classlabels_int64s") == 0 && !texts) || node.output_size() != 1) return;
    const std::string name = absl::StrCat(node.output(0), ".keys");
    node.add_output(name);
    onnx::ValueInfoProto& keys = *graph_.add_output();
    keys.set_name(name);
    keys.mutable_type()->mutable_tensor_type()->set_elem_type(texts ? onnx::TensorProto::STRING
                                                                    : onnx::TensorProto::INT64);
  }

  onnx::GraphProto& graph_;
  absl::flat_hash_map<std::string, int> outputs_;
};

}  // namespace

bool IsClassicOnly(const onnx::ModelProto& model) {
  return model.graph().node_size() > 0 && absl::c_all_of(model.graph().node(), IsClassic);
}

absl::Status AdaptClassicModel(onnx::ModelProto& model) {
  for (const auto& import : model.opset_import())
    if (import.domain() == kClassicDomain && (import.version() < 1 || import.version() > kNewestClassic))
      return absl::UnimplementedError(absl::StrCat("the model uses version ", import.version(), " of ",
                                                   kClassicDomain, "; supported are 1 to ", kNewestClassic,
                                                   ": export it again with one of these"));
  if (absl::c_any_of(model.graph().node(), IsClassic)) Adapter(*model.mutable_graph()).Run();
  return absl::OkStatus();
}

}  // namespace troupe::gpu
