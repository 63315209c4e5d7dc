// Which keys may ask the front for what: each scope against each class of routes, over real sockets.
#include <gtest/gtest.h>

#include "gateway/access_control.hpp"
#include "security/api_keys.hpp"
#include "tests/unit/gateway/gateway_fixture.hpp"

namespace troupe::gateway {
namespace {

using proto::KEY_SCOPE_ADMIN;
using proto::KEY_SCOPE_DEPLOY;
using proto::KEY_SCOPE_INFER;
using proto::KEY_SCOPE_READ;

class AccessHttp : public GatewayFixture {
 protected:
  AccessHttp() {
    options_.access.keys = keys_;
    server_ =
        GatewayServer::Start(options_, service_, &admin_, std::make_shared<prometheus::Registry>()).value();
    client_ = std::make_unique<SocketClient>(server_->port());
  }

  std::string AddKey(const std::string& name, proto::KeyScope scope) {
    const auto text = security::NewApiKey().value();
    proto::CreateApiKey command;
    command.mutable_key()->set_name(name);
    command.mutable_key()->add_scopes(scope);
    command.mutable_key()->set_sha256(security::DigestOfKey(text));
    table_.Apply(command);
    Show();
    return text;
  }
  void Show() { keys_->Set(std::make_shared<security::ApiKeyTable>(table_)); }
  ClientResponse AskWith(std::string_view key, std::string_view method, std::string_view target,
                         std::string_view body = "") {
    return client_->Ask(method, target, body, Cat("Authorization: Bearer ", key, "\r\n"));
  }

  security::ApiKeyTable table_;
  std::shared_ptr<security::CurrentKeys> keys_ = std::make_shared<security::CurrentKeys>();
};

struct Request {
  std::string_view method, target;
  proto::KeyScope scope;
};
constexpr Request kRequests[] = {
    {"POST", "/v2/models/f/infer", KEY_SCOPE_INFER},
    {"DELETE", "/v2/troupe/runs/r", KEY_SCOPE_INFER},
    {"POST", "/v2/systemsharedmemory/region/r/register", KEY_SCOPE_INFER},
    {"POST", "/v2/systemsharedmemory/unregister", KEY_SCOPE_INFER},
    {"POST", "/v2/troupe/functions/g", KEY_SCOPE_DEPLOY},
    {"DELETE", "/v2/troupe/functions/g", KEY_SCOPE_DEPLOY},
    {"POST", "/v2/troupe/functions/g/canary?version=2&weight=10", KEY_SCOPE_DEPLOY},
    {"POST", "/v2/troupe/functions/g/promote", KEY_SCOPE_DEPLOY},
    {"POST", "/v2/troupe/functions/g/rollback", KEY_SCOPE_DEPLOY},
    {"POST", "/v2/troupe/functions/g/sharing", KEY_SCOPE_DEPLOY},
    {"POST", "/v2/troupe/workflows", KEY_SCOPE_DEPLOY},
    {"DELETE", "/v2/troupe/workflows/w", KEY_SCOPE_DEPLOY},
    {"POST", "/v2/repository/models/f/load", KEY_SCOPE_DEPLOY},
    {"POST", "/v2/repository/models/f/unload", KEY_SCOPE_DEPLOY},
    {"GET", "/v2", KEY_SCOPE_READ},
    {"GET", "/v2/models/f", KEY_SCOPE_READ},
    {"GET", "/v2/models/f/ready", KEY_SCOPE_READ},
    {"GET", "/v2/models/f/config", KEY_SCOPE_READ},
    {"GET", "/v2/models/f/stats", KEY_SCOPE_READ},
    {"GET", "/v2/models/stats", KEY_SCOPE_READ},
    {"POST", "/v2/repository/index", KEY_SCOPE_READ},
    {"GET", "/v2/systemsharedmemory/status", KEY_SCOPE_READ},
    {"GET", "/v2/systemsharedmemory/region/r/status", KEY_SCOPE_READ},
    {"GET", "/v2/troupe/functions", KEY_SCOPE_READ},
    {"GET", "/v2/troupe/functions/f", KEY_SCOPE_READ},
    {"GET", "/v2/troupe/workflows", KEY_SCOPE_READ},
    {"GET", "/v2/troupe/runs", KEY_SCOPE_READ},
    {"GET", "/v2/troupe/runs/r", KEY_SCOPE_READ},
    {"GET", "/v2/troupe/cluster", KEY_SCOPE_READ},
    {"GET", "/metrics", KEY_SCOPE_READ},
};

TEST_F(AccessHttp, EachScopeOpensItsRoutesAndNoOthers) {
  for (const auto held : {KEY_SCOPE_INFER, KEY_SCOPE_DEPLOY, KEY_SCOPE_ADMIN, KEY_SCOPE_READ}) {
    const auto key = AddKey(Cat("key-", static_cast<int>(held)), held);
    for (const auto& request : kRequests) {
      const auto answer = AskWith(key, request.method, request.target);
      const auto where = Cat(security::ScopeName(held), " ", request.method, " ", request.target);
      if (held == request.scope || held == KEY_SCOPE_ADMIN) {
        EXPECT_NE(answer.code, 401) << where;
        EXPECT_NE(answer.code, 403) << where;
        continue;
      }
      EXPECT_EQ(answer.code, 403) << where;
      const auto scope = security::ScopeName(request.scope);
      EXPECT_NE(answer.body.find(Cat("--scope ", scope)), std::string::npos) << where << answer.body;
      EXPECT_NE(answer.headers.at("www-authenticate").find(Cat("scope=\"", scope)), std::string::npos)
          << where;
    }
  }
}

TEST_F(AccessHttp, WithoutAKeyNothingButHealthIsAnswered) {
  AddKey("k", KEY_SCOPE_INFER);
  for (const auto& request : kRequests) {
    const auto answer = client_->Ask(request.method, request.target);
    EXPECT_EQ(answer.code, 401) << request.target;
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer realm=\"troupe\"");
    EXPECT_NE(answer.body.find("troupe key create"), std::string::npos) << answer.body;
  }
  for (const std::string_view target :
       {"/v2/health/live", "/v2/health/ready", "/healthz", "/console", "/console/console.js"})
    EXPECT_EQ(client_->Ask("GET", target).code, 200) << target;
}

TEST_F(AccessHttp, ARevokedKeyIsRefusedByTheNextRequest) {
  const auto key = AddKey("k", KEY_SCOPE_INFER);
  AddKey("other", KEY_SCOPE_READ);
  EXPECT_EQ(AskWith(key, "POST", "/v2/models/f/infer", kBody).code, 200);
  proto::RevokeApiKey revoke;
  revoke.set_name("k");
  table_.Apply(revoke);
  Show();
  const auto answer = AskWith(key, "POST", "/v2/models/f/infer", kBody);
  EXPECT_EQ(answer.code, 401);
  EXPECT_NE(answer.headers.at("www-authenticate").find("invalid_token"), std::string::npos);
}

TEST_F(AccessHttp, TheSchemeIsBearerInAnyCase) {
  const auto key = AddKey("k", KEY_SCOPE_READ);
  for (const std::string_view scheme : {"Bearer", "bearer", "BEARER", "bEaReR "})
    EXPECT_EQ(client_->Ask("GET", "/v2", "", Cat("Authorization: ", scheme, " ", key, "\r\n")).code, 200)
        << scheme;
  for (const std::string& value : {Cat("Basic ", key), key, Cat("Bearer", key), std::string("Bearer"),
                                   Cat("Bearer ", key, " x"), Cat("Bearer ", key, ",Bearer ", key)})
    EXPECT_EQ(client_->Ask("GET", "/v2", "", Cat("Authorization: ", value, "\r\n")).code, 401) << value;
}

TEST_F(AccessHttp, AChangeKnowsItsCaller) {
  const auto key = AddKey("ci", KEY_SCOPE_DEPLOY);
  const auto expect = [this](std::string_view what) {
    EXPECT_EQ(admin_.last_caller().name(), "key/ci") << what;
    EXPECT_EQ(admin_.last_caller().address(), "127.0.0.1") << what;
  };
  EXPECT_EQ(AskWith(key, "DELETE", "/v2/troupe/functions/g").code, 200);
  expect("remove");
  EXPECT_EQ(AskWith(key, "POST", "/v2/troupe/functions/g", "onnx").code, 200);
  EXPECT_EQ(admin_.last_deployment().caller.name(), "key/ci");
  EXPECT_EQ(admin_.last_deployment().client, "key/ci");
  const auto operators = AddKey("op", KEY_SCOPE_ADMIN);
  EXPECT_EQ(AskWith(operators, "DELETE", "/v2/troupe/runs/r").code, 200);
  EXPECT_EQ(admin_.last_caller().name(), "key/op");
}

TEST_F(AccessHttp, PagesOfNamedOriginsReadAnswersAndPreflightsNeedNoKey) {
  options_.cors_origins = {"https://app.example"};
  server_ =
      GatewayServer::Start(options_, service_, &admin_, std::make_shared<prometheus::Registry>()).value();
  client_ = std::make_unique<SocketClient>(server_->port());
  const auto key = AddKey("k", KEY_SCOPE_INFER);
  const std::string origin = "Origin: https://app.example\r\n";
  client_->Send(Cat("OPTIONS /v2/models/f/infer HTTP/1.1\r\nHost: x\r\n", origin,
                    "Access-Control-Request-Method: POST\r\n\r\n"));
  const auto preflight = client_->Read(/*head_only=*/true);
  EXPECT_EQ(preflight.code, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "POST");
  EXPECT_NE(preflight.headers.at("access-control-allow-headers").find("Authorization"), std::string::npos);
  EXPECT_FALSE(preflight.headers.contains("content-length"));
  const auto answer =
      client_->Ask("POST", "/v2/models/f/infer", kBody, Cat(origin, "Authorization: Bearer ", key, "\r\n"));
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_FALSE(answer.headers.contains("access-control-allow-credentials"));
  const auto refused = client_->Ask("POST", "/v2/models/f/infer", kBody, origin);
  EXPECT_EQ(refused.code, 401) << "the page may read why";
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "https://app.example");
  client_->Send(
      "OPTIONS /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nOrigin: https://other.example\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_FALSE(client_->Read(/*head_only=*/true).headers.contains("access-control-allow-origin"));
}

// While there is no key, a page in a browser must not pass for the user of this machine.
TEST_F(AccessHttp, PagesOfOtherOriginsAreNotTheUserOfThisMachine) {
  Show();
  EXPECT_EQ(client_->Ask("POST", "/v2/models/f/infer", kBody).code, 200);
  const auto refused = client_->Ask("POST", "/v2/models/f/infer", kBody, "Origin: https://evil.example\r\n");
  EXPECT_EQ(refused.code, 403);
  EXPECT_NE(refused.body.find("--http-cors-origins"), std::string::npos) << refused.body;
  EXPECT_EQ(client_->Ask("GET", "/healthz", "", "Origin: https://evil.example\r\n").code, 200);
}

TEST_F(AccessHttp, TwoKeysInOneRequestAreRefused) {
  const auto key = AddKey("k", KEY_SCOPE_READ);
  const auto line = Cat("Authorization: Bearer ", key, "\r\n");
  EXPECT_EQ(client_->Ask("GET", "/v2", "", Cat(line, line)).code, 400);
}

TEST_F(AccessHttp, AKeyOfOneMebibyteIsTooLong) {
  AddKey("k", KEY_SCOPE_READ);
  EXPECT_EQ(AskWith(std::string(1 << 20, 'a'), "GET", "/v2").code, 431);
}

TEST_F(AccessHttp, ManyUnknownKeysAreToldToWaitAndAKnownKeyIsServed) {
  const auto key = AddKey("k", KEY_SCOPE_READ);
  for (int i = 0; i < FailedKeys::kMostFailures; ++i) EXPECT_EQ(AskWith("x", "GET", "/v2").code, 401) << i;
  const auto answer = AskWith("x", "GET", "/v2");
  EXPECT_EQ(answer.code, 429);
  EXPECT_NE(answer.headers.at("retry-after"), "0");
  EXPECT_TRUE(client_->AtEnd());
  client_ = std::make_unique<SocketClient>(server_->port());
  EXPECT_EQ(AskWith(key, "GET", "/v2").code, 200);
}

TEST_F(AccessHttp, BeforeTheFirstTableNothingButHealthIsAnswered) {
  EXPECT_EQ(client_->Ask("GET", "/v2").code, 503);
  EXPECT_EQ(client_->Ask("GET", "/v2/health/live").code, 200);
  Show();
  EXPECT_EQ(client_->Ask("GET", "/v2").code, 200);
}

TEST(AccessControl, WithoutKeysOnlyThisMachineIsAnswered) {
  AccessOptions options;
  auto keys = std::make_shared<security::CurrentKeys>();
  keys->Set(std::make_shared<security::ApiKeyTable>());
  options.keys = keys;
  HttpRequestHead head{};
  head.client = "192.0.2.1";
  head.is_loopback = false;
  AccessControl strict(options);
  const auto refused = strict.Judge(KEY_SCOPE_READ, head, {}).refusal;
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, 401);
  EXPECT_FALSE(strict.Judge(std::nullopt, head, {}).refusal.has_value());
  head.is_loopback = true;
  EXPECT_FALSE(strict.Judge(KEY_SCOPE_ADMIN, head, {}).refusal.has_value());
  head.is_loopback = false;
  options.any_client_without_keys = true;
  AccessControl open(options);
  EXPECT_FALSE(open.Judge(KEY_SCOPE_READ, head, {}).refusal.has_value());
}

TEST(FailedKeys, AreCountedByAddressAndForgottenAfterAWindow) {
  FailedKeys failed;
  FailedKeys::SteadyTime now{std::chrono::hours(1)};
  for (int i = 0; i < FailedKeys::kMostFailures; ++i) EXPECT_EQ(failed.Count("a", now).count(), 0);
  EXPECT_EQ(failed.Count("a", now), FailedKeys::kWindow);
  EXPECT_EQ(failed.Count("b", now).count(), 0);
  now += FailedKeys::kWindow;
  EXPECT_EQ(failed.Count("a", now).count(), 0);
}

TEST(FailedKeys, HoldABoundedNumberOfAddresses) {
  FailedKeys failed;
  const FailedKeys::SteadyTime now{std::chrono::hours(1)};
  for (std::size_t i = 0; i < 2 * FailedKeys::kMostAddresses; ++i)
    EXPECT_EQ(failed.Count(std::to_string(i), now + std::chrono::milliseconds(i)).count(), 0);
  EXPECT_LE(failed.addresses(), FailedKeys::kMostAddresses);
}

TEST(FailedKeys, AnAddressMakesNoRoomForItself) {
  FailedKeys failed;
  const FailedKeys::SteadyTime now{std::chrono::hours(1)};
  for (std::size_t i = 0; i < FailedKeys::kMostAddresses; ++i)
    EXPECT_EQ(failed.Count(std::to_string(i), now).count(), 0);
  for (int i = 1; i < FailedKeys::kMostFailures; ++i) EXPECT_EQ(failed.Count("0", now).count(), 0);
  EXPECT_EQ(failed.Count("0", now), FailedKeys::kWindow) << "it was the oldest, and is counted on";
  EXPECT_EQ(failed.addresses(), FailedKeys::kMostAddresses);
  EXPECT_EQ(failed.Count("another", now).count(), 0);
  EXPECT_EQ(failed.Count("0", now).count(), 0) << "another address took its place";
}

}  // namespace
}  // namespace troupe::gateway
