// The paths of Triton's system shared memory extension: register, status, unregister.
#pragma once

#include <memory>

#include "gateway/http_message.hpp"
#include "gateway/route.hpp"
#include "gateway/shared_client.hpp"

namespace troupe::gateway {

// `route` names a region, or none: then it is about all of the client's.
[[nodiscard]] std::shared_ptr<HttpExchange> MakeSharedExchange(const Route& route, SharedClient client);

}  // namespace troupe::gateway
