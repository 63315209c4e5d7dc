// ACCESS CONTROL: whether a request may be answered, by its API key ('Authorization: Bearer KEY').
//
//   the cluster has keys     every request needs one with the scope of its route
//   it has none              clients on this machine need none; others are refused, but for
//   --insecure-network not known yet            503: the gateway has not heard from the manager since it
//   started
//
// Liveness and readiness need no key.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "gateway/failed_keys.hpp"
#include "gateway/http_message.hpp"
#include "gateway/route.hpp"
#include "proto/access.pb.h"
#include "security/api_keys.hpp"

namespace troupe::gateway {

struct AccessOptions {
  // Null: every request is answered (a front without a cluster, as in tests).
  std::shared_ptr<const security::CurrentKeys> keys;
  // While the cluster has no key, answer clients on other machines, too (--insecure-network).
  bool any_client_without_keys = false;
};

// The scope that a request needs; nothing for a path that needs no key.
[[nodiscard]] std::optional<proto::KeyScope> ScopeOf(Endpoint endpoint, std::string_view method);

// Thread-safe.
class AccessControl {
 public:
  struct Verdict {
    std::optional<HttpResponse> refusal;  // 401, 403, 429 or 503; nothing: it may be answered
    proto::Caller caller;                 // for the audit; "key/NAME", or no name where no key was needed
  };

  explicit AccessControl(AccessOptions options) : options_(std::move(options)) {}
  [[nodiscard]] Verdict Judge(std::optional<proto::KeyScope> wanted, const HttpRequestHead& head,
                              FailedKeys::SteadyTime now);

 private:
  [[nodiscard]] std::optional<HttpResponse> JudgeKey(const security::ApiKeyTable& keys,
                                                     proto::KeyScope wanted, const HttpRequestHead& head,
                                                     FailedKeys::SteadyTime now, proto::Caller& caller);

  const AccessOptions options_;
  FailedKeys failed_;
};

}  // namespace troupe::gateway
