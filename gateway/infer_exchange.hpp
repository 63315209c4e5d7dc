// One inference request under way: body in, call, response out.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gateway/http_message.hpp"
#include "gateway/idempotency.hpp"
#include "gateway/inference_service.hpp"
#include "gateway/metrics.hpp"

namespace troupe::gateway {

// `head` is read during the call only; everything else outlives the exchange.
[[nodiscard]] std::shared_ptr<HttpExchange> MakeInferExchange(std::string name, std::string version,
                                                              const HttpRequestHead& head, Bytes body_limit,
                                                              InferenceService& service,
                                                              RequestMetrics& metrics,
                                                              IdempotencyTable& idempotency);

}  // namespace troupe::gateway
