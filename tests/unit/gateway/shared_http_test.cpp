// Tensors in clients' shared memory, over real sockets.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "security/api_keys.hpp"
#include "tests/unit/gateway/gateway_fixture.hpp"
#include "tests/unit/gateway/shared_folder.hpp"

namespace troupe::gateway {
namespace {

// The bytes of two floats.
std::string Floats(float a, float b) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &a, 4);
  std::memcpy(bytes.data() + 4, &b, 4);
  return bytes;
}

class SharedHttp : public GatewayFixture {
 protected:
  SharedHttp() {
    options_.shared_memory.emplace().folder = folder_.path();
    options_.shared_memory->inputs = Bytes(48);
    Restart();
    folder_.Make("object", std::string(8, '.') + Floats(1, 2.5F) + std::string(48, '.'));
  }
  void Restart() {
    client_.reset();
    server_.reset();
    registry_ = std::make_shared<prometheus::Registry>();
    server_ = GatewayServer::Start(options_, service_, &admin_, registry_).value();
    client_ = std::make_unique<SocketClient>(server_->port());
  }

  ClientResponse Region(std::string_view verb, std::string_view name = "", std::string_view body = "",
                        std::string_view headers = "") {
    return client_->Ask(verb == "status" ? "GET" : "POST",
                        Cat("/v2/systemsharedmemory", name.empty() ? "" : "/region/", name, "/", verb), body,
                        headers);
  }
  ClientResponse Register(std::string_view name = "r", std::string_view headers = "") {
    return Region("register", name, R"({"key":"/object","offset":0,"byte_size":64})", headers);
  }
  ClientResponse Infer(std::string_view body, std::string_view headers = "", std::string_view name = "f") {
    return client_->Ask("POST", Cat("/v2/models/", name, "/infer"), body, headers);
  }
  static std::string Place(std::uint64_t offset, std::uint64_t size, std::string_view region = "r") {
    return Cat(R"("parameters":{"shared_memory_region":")", region, R"(","shared_memory_offset":)", offset,
               R"(,"shared_memory_byte_size":)", size, "}");
  }
  // The input x of f, with what says its data; and the outputs.
  static std::string Request(std::string_view data, std::string_view outputs = "") {
    return Cat(R"({"id":"7","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32",)", data, "}]", outputs,
               "}");
  }
  static std::string Output(std::string_view place) {
    return Cat(R"(,"outputs":[{"name":"y",)", place, "}]");
  }
  void ExpectError(const ClientResponse& answer, int code, std::string_view text) {
    EXPECT_EQ(answer.code, code) << answer.body;
    EXPECT_NE(answer.body.find(text), std::string::npos) << answer.body;
    service_.WaitForPlaces();
  }
  std::string At(std::size_t offset, std::size_t size) const {
    return folder_.Read("object").substr(offset, size);
  }

  SharedFolder folder_;
};

TEST_F(SharedHttp, RegionsAreRegisteredShownAndUnregistered) {
  EXPECT_NE(client_->Ask("GET", "/v2").body.find("\"system_shared_memory\""), std::string::npos);
  EXPECT_EQ(Region("status").body, "[]");
  EXPECT_EQ(Register("a%20b%2F").code, 200);
  EXPECT_EQ(Region("register", "second", R"({"byte_size":4,"key":"object"})").code, 200);
  const std::string first = R"({"name":"a b/","key":"/object","offset":0,"byte_size":64})";
  const std::string second = R"({"name":"second","key":"object","offset":0,"byte_size":4})";
  EXPECT_EQ(Region("status").body, Cat("[", first, ",", second, "]"));
  EXPECT_EQ(Region("status", "second").body, Cat("[", second, "]"));
  ExpectError(Region("status", "third"), 404, "no shared memory region 'third'");
  EXPECT_EQ(Region("unregister", "second").code, 200);
  EXPECT_EQ(Region("unregister", "second").code, 200);  // as with Triton
  EXPECT_EQ(Region("status").body, Cat("[", first, "]"));
  EXPECT_EQ(Region("unregister").code, 200);
  EXPECT_EQ(Region("status").body, "[]");
  EXPECT_EQ(client_->Ask("GET", "/v2/systemsharedmemory/region/r/register").headers.at("allow"), "POST");
}

TEST_F(SharedHttp, BadRegistrationsAreRefused) {
  ExpectError(Region("register", "r", ""), 400, "");
  ExpectError(Region("register", "r", "[]"), 400, "");
  ExpectError(Region("register", "r", R"({"key":"object"})"), 400, "\\\"byte_size\\\" is missing");
  ExpectError(Region("register", "r", R"({"byte_size":1})"), 400, "\\\"key\\\" is missing");
  ExpectError(Region("register", "r", R"({"key":"object","byte_size":-1})"), 400, "");
  ExpectError(Region("register", "r", R"({"key":"object","byte_size":1e3})"), 400, "");
  ExpectError(Region("register", "r", R"({"key":"object","byte_size":0})"), 400, "1 byte at least");
  ExpectError(Region("register", "r", R"({"key":"object","byte_size":65})"), 400, "which has 64 bytes");
  ExpectError(Region("register", "r", R"({"key":"object","byte_size":1,"byte_size":2})"), 400,
              "send it once");
  ExpectError(Region("register", "r", R"({"key":"object","offset":18446744073709551615,"byte_size":2})"), 400,
              "leaves the shared memory object");
  ExpectError(Region("register", "r", R"({"key":"../object","byte_size":1})"), 400, "one name");
  ExpectError(Region("register", "r", R"({"key":"absent","byte_size":1})"), 404, "create it before");
  ExpectError(Region("register", std::string(257, 'r'), R"({"key":"object","byte_size":1})"), 400,
              "256 bytes");
  EXPECT_EQ(Register().code, 200);
  ExpectError(Register(), 400, "registered already");
}

TEST_F(SharedHttp, ATensorGoesInAndComesOutByMemoryAlone) {
  ASSERT_EQ(Register().code, 200);
  for (const bool elsewhere : {false, true}) {
    service_.AnswerElsewhere(elsewhere);
    folder_.Make("object", std::string(8, '.') + Floats(1, 2.5F) + std::string(48, '.'));
    const auto answer = Infer(Request(Place(8, 8), Output(Place(24, 16))));
    ASSERT_EQ(answer.code, 200) << answer.body;
    EXPECT_EQ(answer.body, Cat(R"({"model_name":"f","model_version":"1","id":"7","outputs":[{"name":"y",)",
                               R"("datatype":"FP32","shape":[1,2],)", Place(24, 8), "}]}"));
    EXPECT_EQ(folder_.Read("object"), std::string(8, '.') + Floats(1, 2.5F) + std::string(8, '.') +
                                          Floats(1, 2.5F) + std::string(32, '.'));
    EXPECT_EQ(service_.open_outputs(), 0U);
    service_.WaitForPlaces();
  }
  const auto page = client_->Ask("GET", "/metrics").body;
  EXPECT_NE(page.find("troupe_shared_memory_copied_bytes_total{direction=\"in\"} 16"), std::string::npos)
      << page;
  EXPECT_NE(page.find("troupe_shared_memory_copied_bytes_total{direction=\"out\"} 16"), std::string::npos);
  EXPECT_NE(page.find("troupe_shared_memory_regions 1"), std::string::npos);
}

TEST_F(SharedHttp, MemoryOneWayAndJsonOrRawBytesTheOther) {
  ASSERT_EQ(Register().code, 200);
  EXPECT_EQ(Infer(Request(Place(8, 8))).body, kAnswer);
  EXPECT_EQ(Infer(Request(R"("data":[7,8])", Output(Place(0, 8)))).code, 200);
  EXPECT_EQ(At(0, 8), Floats(7, 8));
  // Raw bytes of one input, and the other in memory, as an element of BYTES.
  folder_.Make("text", std::string("\3\0\0\0abc", 7));
  ASSERT_EQ(Region("register", "t", R"({"key":"text","byte_size":7})").code, 200);
  const std::string json =
      Cat(R"({"inputs":[{"name":"s","shape":[1],"datatype":"BYTES",)", Place(0, 7, "t"),
          R"(},{"name":"a","shape":[2],"datatype":"UINT8","parameters":{"binary_data_size":2}}]})");
  const auto answer =
      Infer(Cat(json, "\1\2"), Cat("Inference-Header-Content-Length: ", json.size(), "\r\n"), "two");
  ASSERT_EQ(answer.code, 200) << answer.body;
  EXPECT_NE(answer.body.find(R"("data":[1,2])"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find(R"("data":["abc"])"), std::string::npos) << answer.body;
}

TEST_F(SharedHttp, BytesAreCheckedAsThoseOfABody) {
  service_.AddEcho("bools", {Spec("x", proto::BOOL, {2})}, {"y"});
  folder_.Make("text", std::string("\4\0\0\0abc", 7));
  ASSERT_EQ(Region("register", "t", R"({"key":"text","byte_size":7})").code, 200);
  ExpectError(Infer(Cat(R"({"inputs":[{"name":"a","shape":[0],"datatype":"UINT8","data":[]},)",
                        R"({"name":"s","shape":[1],"datatype":"BYTES",)", Place(0, 7, "t"), "}]}"),
                    "", "two"),
              400, "");
  ExpectError(Infer(Cat(R"({"inputs":[{"name":"x","shape":[2],"datatype":"BOOL",)", Place(0, 2, "t"), "}]}"),
                    "", "bools"),
              400, "");
  EXPECT_EQ(service_.calls(), 0U);
}

TEST_F(SharedHttp, PlacesThatCannotBeAreRefused) {
  ASSERT_EQ(Register().code, 200);
  ExpectError(Infer(Request(Place(0, 8, "s"))), 404, "input 'x': no shared memory region 's'");
  ExpectError(Infer(Request(Place(57, 8))), 400, "leave the shared memory region 'r', which has 64 bytes");
  ExpectError(Infer(Request(Place(18446744073709551615U, 8))), 400, "leave the shared memory region");
  ExpectError(Infer(Request(Place(0, 7))), 400, "has 8 bytes");
  ExpectError(Infer(Request(Cat(R"("data":[1,2],)", Place(0, 8)))), 400, "has both");
  ExpectError(Infer(Request(R"("parameters":{"binary_data_size":8,"shared_memory_region":"r"})")), 400,
              "has both");
  ExpectError(Infer(Request(R"("parameters":{"shared_memory_region":"r"})")), 400, "lacks");
  ExpectError(Infer(Request(R"("parameters":{"shared_memory_byte_size":8})")), 400, "lacks");
  ExpectError(Infer(Request(R"("parameters":{"shared_memory_offset":0})")), 400, "lacks");
  ExpectError(Infer(Request(R"("parameters":{"shared_memory_region":7,"shared_memory_byte_size":8})")), 400,
              "");
  ExpectError(Infer(Request(R"("parameters":{"shared_memory_region":"r","shared_memory_byte_size":-8})")),
              400, "");
  ExpectError(Infer(Request(Cat(R"("parameters":{"shared_memory_region":"r","shared_memory_region":"r"})"))),
              400, "send it once");
  const std::string data = R"("data":[1,2])";
  ExpectError(Infer(Request(data, Output(Place(0, 8, "s")))), 404, "output 'y'");
  ExpectError(Infer(Request(data, Output(Place(60, 8)))), 400, "leave the shared memory region");
  ExpectError(Infer(Request(data, Output(R"("parameters":{"shared_memory_region":"r"})"))), 400, "lacks");
  ExpectError(Infer(Request(data, Output(R"("parameters":{"binary_data":true,"shared_memory_region":"r",)"
                                         R"("shared_memory_byte_size":8})"))),
              400, "has both");
  EXPECT_EQ(service_.calls(), 0U);
  ExpectError(Infer(Request(data, Output(Place(0, 7)))), 400, "has 8 bytes, and the request has room for 7");
  EXPECT_EQ(At(0, 8), "........");
}

TEST_F(SharedHttp, AClientThatShrinksItsObjectHurtsItselfAlone) {
  ASSERT_EQ(Register().code, 200);
  service_.Hold(true);
  client_->Send(Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                    Request(Place(8, 8), Output(Place(24, 8))).size(), "\r\n\r\n",
                    Request(Place(8, 8), Output(Place(24, 8)))));
  service_.WaitForHeld(1);
  folder_.Resize("object", 12);  // in the middle of the input, while the function runs
  service_.ReleaseAll();
  ExpectError(client_->Read(), 400, "was shrunk since it was registered");
  EXPECT_EQ(folder_.Read("object").size(), 12U);
  service_.Hold(false);
  ExpectError(Infer(Request(Place(8, 8))), 400, "was shrunk since it was registered");
  EXPECT_EQ(Infer(kBody).code, 200);
}

TEST_F(SharedHttp, AFailedCallWritesNothing) {
  ASSERT_EQ(Register().code, 200);
  service_.AnswerWith(absl::UnavailableError("no node"));
  ExpectError(Infer(Request(Place(8, 8), Output(Place(24, 8)))), 503, "no node");
  EXPECT_EQ(At(24, 8), "........");
}

TEST_F(SharedHttp, UnregisteringWaitsForTheRequestsThatUseARegion) {
  ASSERT_EQ(Register().code, 200);
  service_.Hold(true);
  const auto body = Request(Place(8, 8), Output(Place(24, 8)));
  client_->Send(
      Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  service_.WaitForHeld(1);
  SocketClient other(server_->port());
  other.Send("POST /v2/systemsharedmemory/unregister HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  SocketClient third(server_->port());
  while (third.Ask("GET", "/v2/systemsharedmemory/status").body != "[]") std::this_thread::yield();
  service_.ReleaseAll();
  EXPECT_EQ(other.Read().code, 200);
  EXPECT_EQ(At(24, 8), Floats(1, 2.5F));  // written before that answer
  EXPECT_EQ(client_->Read().code, 200);
}

TEST_F(SharedHttp, AClientThatGoesLeavesNothingInUse) {
  ASSERT_EQ(Register().code, 200);
  service_.Hold(true);
  const auto body = Request(Place(8, 8), Output(Place(24, 8)));
  client_->Send(
      Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  service_.WaitForHeld(1);
  client_->Close();
  service_.WaitForCancelled(1);
  client_ = std::make_unique<SocketClient>(server_->port());
  EXPECT_EQ(Region("unregister").code, 200);
  EXPECT_EQ(At(24, 8), "........");
  service_.WaitForPlaces();
}

TEST_F(SharedHttp, InputsUnderWayAreBoundedForEachClient) {
  ASSERT_EQ(Register().code, 200);
  service_.Hold(true);
  std::vector<std::unique_ptr<SocketClient>> others;
  const auto body = Request(Place(8, 8));
  for (std::size_t i = 1; i <= 4; ++i) {  // 32 of 48 bytes
    others.push_back(std::make_unique<SocketClient>(server_->port()));
    others.back()->Send(Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                            "\r\n\r\n", body));
    service_.WaitForHeld(i);
  }
  const auto refused = Infer(body);
  EXPECT_EQ(refused.code, 503) << refused.body;
  EXPECT_EQ(refused.headers.count("retry-after"), 1U);
  service_.Hold(false);
  EXPECT_EQ(Infer(kBody).code, 200);  // tensors in bodies have room
  service_.ReleaseAll();
  for (const auto& other : others) EXPECT_EQ(other->Read().code, 200);
  EXPECT_EQ(Infer(body).code, 200);
}

TEST_F(SharedHttp, IdempotencyKeys) {
  ASSERT_EQ(Register().code, 200);
  const std::string_view key = "Idempotency-Key: k\r\n";
  ExpectError(Infer(Request(Place(8, 8), Output(Place(24, 8))), key), 400, "leave out the key");
  EXPECT_EQ(Infer(Request(Place(8, 8)), key).body, kAnswer);
  const auto again = Infer(Request(Place(8, 8)), key);
  EXPECT_EQ(again.body, kAnswer);
  EXPECT_EQ(again.headers.count("idempotent-replayed"), 1U);
  folder_.Make("object", std::string(8, '.') + Floats(3, 4) + std::string(48, '.'));
  EXPECT_EQ(Infer(Request(Place(8, 8)), key).code, 422);  // the same place with other bytes
}

TEST_F(SharedHttp, WebPagesHaveNone) {
  options_.cors_origins = {"*"};
  Restart();
  ASSERT_EQ(Register().code, 200);
  const std::string_view page = "Origin: https://app.example\r\n";
  EXPECT_EQ(Infer(kBody, page).code, 200);
  ExpectError(Infer(Request(Place(8, 8)), page), 403, "not for web pages");
  ExpectError(Infer(Request(R"("data":[1,2])", Output(Place(0, 8))), page), 403, "not for web pages");
  ExpectError(Register("other", page), 403, "not for web pages");
  ExpectError(Region("status", "", "", page), 403, "not for web pages");
  ExpectError(Region("unregister", "", "", page), 403, "not for web pages");
  EXPECT_EQ(Infer(Request(Place(8, 8))).code, 200);
}

TEST_F(SharedHttp, AnotherUsersObjectIsRefused) {
  if (getuid() != 0) GTEST_SKIP() << "only root makes objects of other users";
  ASSERT_EQ(chown(folder_.Of("object").c_str(), 4711, static_cast<gid_t>(-1)), 0);
  ExpectError(Register(), 403, "belongs to user 4711, and this client runs as user 0");
}

TEST_F(SharedHttp, AGatewayThatOffersNone) {
  options_.shared_memory.reset();
  Restart();
  EXPECT_EQ(client_->Ask("GET", "/v2").body.find("system_shared_memory"), std::string::npos);
  ExpectError(Register(), 501, "http-shared-memory");
  ExpectError(Region("status"), 501, "");
  ExpectError(Region("unregister"), 501, "");
  ExpectError(Infer(Request(Place(8, 8))), 501, "http-shared-memory");
  ExpectError(Infer(Request(R"("data":[1,2])", Output(Place(0, 8)))), 501, "http-shared-memory");
}

TEST_F(SharedHttp, EachApiKeyHasItsOwnRegions) {
  const auto keys = std::make_shared<security::CurrentKeys>();
  security::ApiKeyTable table;
  const auto header = [&](const std::string& name, std::initializer_list<proto::KeyScope> scopes) {
    const auto text = security::NewApiKey().value();
    proto::CreateApiKey command;
    command.mutable_key()->set_name(name);
    for (const auto scope : scopes) command.mutable_key()->add_scopes(scope);
    command.mutable_key()->set_sha256(security::DigestOfKey(text));
    table.Apply(command);
    return Cat("Authorization: Bearer ", text, "\r\n");
  };
  const auto a = header("a", {proto::KEY_SCOPE_INFER, proto::KEY_SCOPE_READ});
  const auto b = header("b", {proto::KEY_SCOPE_INFER, proto::KEY_SCOPE_READ});
  const auto reader = header("reader", {proto::KEY_SCOPE_READ});
  keys->Set(std::make_shared<security::ApiKeyTable>(table));
  options_.access.keys = keys;
  Restart();
  EXPECT_EQ(Register().code, 401);
  EXPECT_EQ(Register("r", reader).code, 403);
  EXPECT_EQ(Region("unregister", "", "", reader).code, 403);
  EXPECT_EQ(Register("r", a).code, 200);
  EXPECT_EQ(Region("status", "", "", b).body, "[]");
  EXPECT_EQ(Infer(Request(Place(8, 8)), a).code, 200);
  ExpectError(Infer(Request(Place(8, 8)), b), 404, "is registered by this client");
  EXPECT_EQ(Region("unregister", "", "", b).code, 200);
  EXPECT_EQ(Infer(Request(Place(8, 8)), a).code, 200);
}

}  // namespace
}  // namespace troupe::gateway
