// The answer to an inference request: JSON, or JSON followed by the bytes of the outputs that were asked for
// in binary.
#pragma once

#include <string_view>

#include "gateway/http_message.hpp"
#include "gateway/infer_request.hpp"
#include "gateway/inference_service.hpp"

namespace troupe::gateway {

// `parsed` says how each output was asked for. The outputs' bytes are sent from where they lie. Those that were
// asked for in shared memory are written there, and then let go of: the answer says how many bytes they are.
[[nodiscard]] HttpResponse InferResponse(std::string_view function, const ParsedInfer& parsed,
                                         InferResult result, SharedMemory* memory = nullptr);

}  // namespace troupe::gateway
