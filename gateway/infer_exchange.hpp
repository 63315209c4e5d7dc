// One inference request under way: body in, call, response out.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gateway/http_message.hpp"
#include "gateway/idempotency.hpp"
#include "gateway/inference_service.hpp"
#include "gateway/metrics.hpp"
#include "gateway/shared_client.hpp"

namespace troupe::gateway {

// What all inference requests of one front share. Outlives them.
struct InferFront {
  InferenceService& service;
  RequestMetrics& metrics;
  IdempotencyTable& idempotency;
  const Bytes body_limit;
};

// `head` is read during the call only.
[[nodiscard]] std::shared_ptr<HttpExchange> MakeInferExchange(std::string name, std::string version,
                                                              const HttpRequestHead& head,
                                                              SharedClient client, const InferFront& front);

}  // namespace troupe::gateway
