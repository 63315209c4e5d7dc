#include "sim/checkers/version_watch.hpp"

#include <caf/message.hpp>

#include "actors/core/protobuf_adapter.hpp"
#include "proto/request.pb.h"

namespace troupe::sim {

void VersionWatch::Sent(const Passage& /*passage*/, const caf::message& content) {
  if (content.empty() || !content.match_element<proto::SubmitRequest>(0)) return;
  const auto& submit = content.get_as<proto::SubmitRequest>(0);
  if (function_.empty() || submit.function().name() != function_) return;
  sent_.push_back({submit.inputs(0).data().inlined(), submit.function().version(), submit.model_digest()});
}

void VersionWatch::Arrives(const Passage& /*passage*/, caf::message& /*content*/) {}

}  // namespace troupe::sim
