// KEPT INPUTS: inputs of requests that stayed with a worker of some node (KeptTensor): which node has most of them, and
// which are to be exported before a request can be sent to another node.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/request.pb.h"

namespace troupe::actors {

// The node that keeps most bytes of the request's inputs; "": they are kept nowhere. Equal ones: the first by name.
[[nodiscard]] std::string HolderOf(const proto::InferRequest& request);

// Has the inputs exported that other nodes than `node` keep, so that it can read them. `done` is called once, and at once
// when no other node keeps an input. DataLoss: `holder` has lost the inputs that it kept, or is away. `ask` asks a node.
using ExportDone = std::function<void(const absl::StatusOr<proto::ExportedTensors>&)>;
void BringInputs(
    const std::shared_ptr<proto::SubmitRequest>& request, const std::string& node,
    const std::function<void(const std::string& holder, proto::ExportTensors wish, ExportDone done)>& ask,
    const std::function<void(const absl::Status& status, const std::string& holder)>& done);
// The answer of a node that is not connected, or does not answer.
[[nodiscard]] proto::ExportedTensors HolderAway(const std::string& holder, const absl::Status& why);
// A node could not read its inputs (DATA_LOSS): names as lost the inputs that other nodes have kept and exported for it.
void NameLost(const proto::InferRequest& request, const std::string& node, proto::InferReply& reply);
// What a caller is told when the tensors that `holder` kept are lost with it.
[[nodiscard]] proto::InferReply LostInputs(const proto::InferRequest& request, const std::string& holder,
                                           const absl::Status& why);

}  // namespace troupe::actors
