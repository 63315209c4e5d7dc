#include "cluster/object_references.hpp"

namespace troupe::cluster {

namespace {

void AddBlobs(const google::protobuf::RepeatedPtrField<proto::StoredTensor>& tensors, Digests& digests) {
  for (const auto& tensor : tensors)
    if (tensor.has_blob()) digests.insert(tensor.blob());
}

}  // namespace

void AddObjectsOf(const proto::FunctionRecord& function, Digests& digests) {
  digests.insert({function.onnx_digest(), function.model_digest(), function.weights_digest()});
  for (const auto& packed : function.packed()) {
    digests.insert(packed.model_digest());
    digests.insert(packed.weights_digest());
  }
}

void AddObjectsOf(const proto::StartRun& start, Digests& digests) {
  AddBlobs(start.inputs(), digests);
}

void AddObjectsOf(const proto::RunRecord& run, Digests& digests) {
  AddObjectsOf(run.start(), digests);
  for (const auto& step : run.steps()) AddBlobs(step.outputs(), digests);
  AddBlobs(run.outputs(), digests);
}

}  // namespace troupe::cluster
