// One inference request under way: body in, call, response out.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gateway/http_message.hpp"
#include "gateway/inference_service.hpp"
#include "gateway/metrics.hpp"

namespace troupe::gateway {

// `header_length`: value of Inference-Header-Content-Length, empty when there was none.
[[nodiscard]] std::shared_ptr<HttpExchange> MakeInferExchange(std::string name, std::string version,
                                                              std::string_view header_length,
                                                              Bytes body_limit, InferenceService& service,
                                                              RequestMetrics& metrics);

}  // namespace troupe::gateway
