#include "gateway/access_control.hpp"

#include <algorithm>

#include "gateway/http_error.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

HttpResponse Unauthorized(std::string_view message, std::string_view error = "") {
  HttpResponse response = ErrorResponse(401, message);
  response.headers = Cat("WWW-Authenticate: Bearer realm=\"troupe\"", error.empty() ? "" : ", error=\"",
                         error, error.empty() ? "" : "\"", "\r\n");
  return response;
}

// RFC 9110, 11.1: the scheme's case does not matter.
bool IsBearer(std::string_view scheme) {
  constexpr std::string_view kBearer = "bearer";
  return std::equal(scheme.begin(), scheme.end(), kBearer.begin(), kBearer.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

HttpResponse Forbidden(std::string_view key, std::string_view scope) {
  HttpResponse response = ErrorResponse(403, Cat("the key '", key, "' does not have the scope '", scope,
                                                 "' that this request needs; an operator makes a key that "
                                                 "has it with: troupe key create NAME --scope ",
                                                 scope));
  response.headers = Cat("WWW-Authenticate: Bearer realm=\"troupe\", error=\"insufficient_scope\", scope=\"",
                         scope, "\"\r\n");
  return response;
}

}  // namespace

std::optional<proto::KeyScope> ScopeOf(Endpoint endpoint, std::string_view method) {
  const bool reads = method == "GET" || method == "HEAD";
  switch (endpoint) {
    case Endpoint::kLive:
    case Endpoint::kReady:
    case Endpoint::kHealthz:
    case Endpoint::kConsole:  // the page says nothing of the cluster: it asks, with its reader's key
      return std::nullopt;
    case Endpoint::kInfer:
    case Endpoint::kSharedRegister:  // a client's own memory, for its own requests
    case Endpoint::kSharedUnregister:
      return proto::KEY_SCOPE_INFER;
    case Endpoint::kRun:  // to cancel a run is its caller's affair
      return reads ? proto::KEY_SCOPE_READ : proto::KEY_SCOPE_INFER;
    case Endpoint::kRepositoryLoad:
    case Endpoint::kRepositoryUnload:
    case Endpoint::kCanary:
    case Endpoint::kPromote:
    case Endpoint::kRollBack:
    case Endpoint::kSharing:
    case Endpoint::kUpload:  // how far an upload is concerns the client that deploys
      return proto::KEY_SCOPE_DEPLOY;
    case Endpoint::kFunction:
    case Endpoint::kWorkflows:
    case Endpoint::kWorkflow:
      return reads ? proto::KEY_SCOPE_READ : proto::KEY_SCOPE_DEPLOY;
    case Endpoint::kServerMetadata:
    case Endpoint::kModelMetadata:
    case Endpoint::kModelReady:
    case Endpoint::kModelConfig:
    case Endpoint::kModelStatistics:
    case Endpoint::kAllStatistics:
    case Endpoint::kRepositoryIndex:
    case Endpoint::kSharedStatus:
    case Endpoint::kFunctions:
    case Endpoint::kImports:
    case Endpoint::kImport:
    case Endpoint::kRuns:
    case Endpoint::kCluster:
    case Endpoint::kMetrics:
      return proto::KEY_SCOPE_READ;
  }
  return proto::KEY_SCOPE_ADMIN;
}

AccessControl::Verdict AccessControl::Judge(std::optional<proto::KeyScope> wanted,
                                            const HttpRequestHead& head, FailedKeys::SteadyTime now) {
  Verdict verdict;
  verdict.caller.set_address(std::string(head.client));
  if (options_.keys == nullptr || !wanted) return verdict;
  const auto keys = options_.keys->Get();
  if (keys == nullptr) {
    verdict.refusal = ErrorResponse(absl::UnavailableError(
        "this gateway has not heard from the manager yet, and does not know who may ask; try again"));
  } else if (!keys->empty()) {
    verdict.refusal = JudgeKey(*keys, *wanted, head, now, verdict.caller);
  } else if (!head.is_loopback && !options_.any_client_without_keys) {
    verdict.refusal = Unauthorized(
        "the cluster has no API key yet, so that only clients on the gateway's own machine are answered; an "
        "operator "
        "makes one with: troupe key create NAME --scope infer,deploy,read");
  }
  return verdict;
}

std::optional<HttpResponse> AccessControl::JudgeKey(const security::ApiKeyTable& keys, proto::KeyScope wanted,
                                                    const HttpRequestHead& head, FailedKeys::SteadyTime now,
                                                    proto::Caller& caller) {
  const std::string_view scope = security::ScopeName(wanted);
  if (head.authorization.empty()) {
    return Unauthorized(
        Cat("this request needs an API key with the scope '", scope,
            "': send the header 'Authorization: Bearer KEY'; an operator makes a key with: troupe key "
            "create NAME --scope ",
            scope));
  }
  const std::size_t space = std::min(head.authorization.find(' '), head.authorization.size());
  std::string_view text = head.authorization.substr(space);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto* key = IsBearer(head.authorization.substr(0, space)) ? keys.Find(text) : nullptr;
  if (key != nullptr) {
    caller.set_name(Cat("key/", key->name()));
    if (security::Allows(*key, wanted)) return std::nullopt;
    return Forbidden(key->name(), scope);
  }
  const auto wait = failed_.Count(std::string(head.client), now);
  if (wait.count() == 0) {
    return Unauthorized(
        "the header 'Authorization' has no key that the cluster knows; it must be 'Bearer KEY', and the key "
        "may have "
        "been revoked: 'troupe key list' shows the names of all keys",
        "invalid_token");
  }
  HttpResponse response =
      ErrorResponse(429, "too many requests of this address had keys that the cluster does not know; wait");
  response.headers = Cat("Retry-After: ", wait.count(), "\r\n");
  response.close = true;
  return response;
}

}  // namespace troupe::gateway
