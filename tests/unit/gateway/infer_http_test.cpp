// Inference over real sockets.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/status.hpp"
#include "gateway/tensor_type.hpp"
#include "tests/unit/gateway/deflated.hpp"
#include "tests/unit/gateway/gateway_fixture.hpp"

namespace troupe::gateway {
namespace {

class InferHttp : public GatewayFixture {
 protected:
  ClientResponse Infer(std::string_view body, std::string_view headers = "", std::string_view name = "f") {
    return client_->Ask("POST", Cat("/v2/models/", name, "/infer"), body, headers);
  }
  ClientResponse Binary(std::string_view json, std::string_view raw, std::string_view name) {
    return Infer(Cat(json, raw), Cat("Inference-Header-Content-Length: ", json.size(), "\r\n"), name);
  }
};

TEST_F(InferHttp, JsonInJsonOut) {
  const ClientResponse response = Infer(kBody);
  EXPECT_EQ(response.code, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_EQ(response.body, kAnswer);
  EXPECT_EQ(client_->Ask("POST", "/v2/models/f/versions/1/infer", kBody).body, kAnswer);
  EXPECT_EQ(service_.last_version(), "1");
  service_.WaitForPlaces();
}

TEST_F(InferHttp, ASequenceIsNamedInTheHeadOrInTheBody) {
  EXPECT_EQ(Infer(kBody, "Troupe-Sequence: chat-7; start\r\n").code, 200);
  EXPECT_EQ(service_.last_sequence(), (Sequence{"chat-7", true}));
  const std::string body =
      Cat(R"({"parameters":{"sequence_id":9,"sequence_end":true},)", std::string_view(kBody).substr(1));
  EXPECT_EQ(Infer(body).code, 200);
  EXPECT_EQ(service_.last_sequence(), (Sequence{"9", false, true}));
  EXPECT_EQ(Infer(body, "Troupe-Sequence: 9; end\r\n").code, 200);
  EXPECT_EQ(Infer(kBody).code, 200);
  EXPECT_EQ(service_.last_sequence(), Sequence());
  const auto calls = service_.calls();
  for (const char* head :
       {"Troupe-Sequence: 9\r\n", "Troupe-Sequence: 8; end\r\n", "Troupe-Sequence: a b\r\n",
        "Troupe-Sequence: 9; end\r\nTroupe-Sequence: 9; end\r\n"})
    EXPECT_EQ(Infer(body, head).code, 400) << head;
  EXPECT_EQ(service_.calls(), calls);
  service_.WaitForPlaces();
}

// The same body with the same key for another sequence is another request.
TEST_F(InferHttp, AnIdempotencyKeyIsOfOneSequence) {
  const auto ask = [&](const char* sequence) {
    return Infer(kBody, Cat("Idempotency-Key: k\r\nTroupe-Sequence: ", sequence, "\r\n")).code;
  };
  EXPECT_EQ(ask("a"), 200);
  EXPECT_EQ(ask("a"), 200);
  EXPECT_EQ(ask("b"), 422);
  EXPECT_EQ(ask("a; end"), 422);
}

TEST_F(InferHttp, ChunkedAndFromAnotherThread) {
  service_.AnswerElsewhere(true);
  std::string text = "POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char c : kBody) Append(text, "1\r\n", std::string_view(&c, 1), "\r\n");
  client_->Send(Cat(text, "0\r\n\r\n"));
  EXPECT_EQ(client_->Read().body, kAnswer);
}

TEST_F(InferHttp, LargeRawInputsTakeTheirPlacesWhenHalfOfThemIsThere) {
  service_.AddEcho("wide", {Spec("p", proto::UINT8, {-1}), Spec("q", proto::UINT8, {-1})}, {"y", "z"});
  const std::size_t p = 100'000;
  const std::size_t q = 500'000;
  std::string raw(p + q, ' ');
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<char>(i * 7 + i / 251);
  const std::string json = Cat(
      R"({"inputs":[{"name":"p","shape":[)", p, R"(],"datatype":"UINT8","parameters":{"binary_data_size":)",
      p, R"(}},{"name":"q","shape":[)", q, R"(],"datatype":"UINT8","parameters":{"binary_data_size":)", q,
      R"(}}],"parameters":{"binary_data_output":true}})");
  service_.RefusePlaces(true);  // a place that is taken at the first byte fails at once
  client_->Send(Cat("POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: ",
                    json.size(), "\r\nContent-Length: ", json.size() + raw.size(), "\r\n\r\n", json));
  while (server_->load().inflight.count() < 64 * 1024) std::this_thread::yield();
  service_.WaitForPlaces();
  service_.RefusePlaces(false);
  client_->Send(raw);
  const ClientResponse response = client_->Read();
  ASSERT_EQ(response.code, 200) << response.body;
  EXPECT_EQ(response.body.substr(std::stoul(response.headers.at("inference-header-content-length"))), raw);
}

TEST_F(InferHttp, EveryTypeRoundTripsAsRawBytes) {
  for (const auto type :
       {proto::BOOL, proto::UINT8, proto::UINT16, proto::UINT32, proto::UINT64, proto::INT8, proto::INT16,
        proto::INT32, proto::INT64, proto::FP16, proto::FP32, proto::FP64, proto::BF16}) {
    service_.AddEcho("typed", {Spec("x", type, {3})}, {"y"});
    std::string raw(3 * ElementSize(type), '\1');
    raw[0] = '\0';
    const std::string json = Cat(R"({"inputs":[{"name":"x","shape":[3],"datatype":")", TypeName(type),
                                 R"(","parameters":{"binary_data_size":)", raw.size(),
                                 R"(}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]})");
    const ClientResponse response = Binary(json, raw, "typed");
    ASSERT_EQ(response.code, 200) << TypeName(type) << response.body;
    const std::size_t length = std::stoul(response.headers.at("inference-header-content-length"));
    EXPECT_EQ(response.headers.at("content-type"), "application/octet-stream");
    EXPECT_EQ(response.body.substr(length), raw);
    EXPECT_NE(response.body.find(Cat(R"("parameters":{"binary_data_size":)", raw.size(), "}")),
              std::string::npos);
    // The same tensors as a raw request, and, where the type has one, in JSON form.
    const ClientResponse bare = Infer(raw, "Inference-Header-Content-Length: 0\r\n", "typed");
    ASSERT_EQ(bare.code, 200) << bare.body;
    EXPECT_EQ(bare.body.substr(std::stoul(bare.headers.at("inference-header-content-length"))), raw);
  }
}

TEST_F(InferHttp, TwoBinaryInputsAndOneJsonOutput) {
  const std::string json =
      R"({"inputs":[{"name":"s","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":9}},)"
      R"({"name":"a","shape":[3],"datatype":"UINT8","parameters":{"binary_data_size":3}}],)"
      R"("outputs":[{"name":"t"},{"name":"b","parameters":{"binary_data":true}}]})";
  const ClientResponse response = Binary(json, std::string("\1\0\0\0z\0\0\0\0\5\6\7", 12), "two");
  ASSERT_EQ(response.code, 200) << response.body;
  EXPECT_NE(response.body.find(R"({"name":"t","datatype":"BYTES","shape":[2],"data":["z",""]})"),
            std::string::npos);
  EXPECT_EQ(response.body.substr(response.body.size() - 3), "\5\6\7");
  EXPECT_EQ(Binary(json, std::string("\7\0\0\0z\0\0\0\0\5\6\7", 12), "two").code, 400);
}

TEST_F(InferHttp, LargeInputsGoStraightToTheirPlace) {
  service_.AddEcho("large", {Spec("x", proto::UINT8, {-1})}, {"y"});
  std::string raw(900'000, '\0');
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<char>(i * 31 >> 3);
  const ClientResponse response = Infer(raw, "Inference-Header-Content-Length: 0\r\n", "large");
  ASSERT_EQ(response.code, 200);
  EXPECT_TRUE(response.body.ends_with(raw));
  std::string numbers;
  for (int i = 0; i < 200'000; ++i) numbers += i % 2 == 0 ? "1," : "0,";
  numbers.back() = ']';
  const ClientResponse json =
      Infer(Cat(R"({"inputs":[{"name":"x","shape":[200000],"datatype":"UINT8","data":[)", numbers, "}]}"), "",
            "large");
  ASSERT_EQ(json.code, 200) << json.body.substr(0, 200);
  EXPECT_TRUE(json.body.ends_with(Cat("\"data\":[", numbers, "}]}")));
}

TEST_F(InferHttp, ErrorsHaveTritonsCodes) {
  EXPECT_EQ(Infer(kBody, "", "absent").code, 404);
  EXPECT_EQ(client_->Ask("POST", "/v2/models/f/versions/9/infer", kBody).code, 404);
  EXPECT_EQ(client_->Ask("POST", "/v2/models/%zz/infer", kBody).code, 400);
  const ClientResponse method = client_->Ask("GET", "/v2/models/f/infer");
  EXPECT_EQ(method.code, 405);
  EXPECT_EQ(method.headers.at("allow"), "POST");
  EXPECT_EQ(client_->Ask("GET", "/v2/nonsense").code, 404);
  EXPECT_EQ(Infer(kBody, "Content-Encoding: gzip\r\n").code, 400);
  const ClientResponse coding = Infer(kBody, "Content-Encoding: br\r\n");
  EXPECT_EQ(coding.code, 415);
  EXPECT_EQ(coding.headers.at("accept-encoding"), "gzip, deflate");
  EXPECT_EQ(Infer(kBody, "Content-Encoding: gzip, gzip\r\n").code, 415);
  EXPECT_EQ(Infer(kBody, "Content-Encoding: identity\r\n").code, 200);
  EXPECT_EQ(Infer(kBody, "Inference-Header-Content-Length: x\r\n").code, 400);
  EXPECT_EQ(Infer(kBody, "Inference-Header-Content-Length: 9999\r\n").code, 400);
  EXPECT_EQ(Infer(kBody, "Inference-Header-Content-Length: 10\r\n").code, 400);
  EXPECT_EQ(Infer("").code, 400);
  EXPECT_EQ(Infer(std::string((1 << 20) + 1, ' ')).code, 413);
}

TEST_F(InferHttp, CompressedBodies) {
  const std::string plain(kBody);
  for (const auto coding : {BodyCoding::kGzip, BodyCoding::kDeflate}) {
    const std::string header =
        coding == BodyCoding::kGzip ? "Content-Encoding: GZIP\r\n" : "Content-Encoding: deflate\r\n";
    const auto body = Deflated(plain, coding);
    EXPECT_EQ(Infer(body, header).body, kAnswer);
    std::string chunked =
        Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n", header, "\r\n");
    for (const char c : body) Append(chunked, "1\r\n", std::string_view(&c, 1), "\r\n");
    client_->Send(Cat(chunked, "0\r\n\r\n"));
    EXPECT_EQ(client_->Read().body, kAnswer);
    EXPECT_EQ(Infer(body.substr(0, body.size() - 3), header).code, 400);
    EXPECT_EQ(Infer(body + "garbage", header).code, 400);
    // The limit is of the decoded length, whatever the coding.
    EXPECT_EQ(Infer(Deflated(std::string((1 << 20) + 1, ' '), coding), header).code, 413);
    EXPECT_EQ(Infer(plain).code, 200) << "the connection stays open";
  }
  while (server_->load().inflight.count() > 0) std::this_thread::yield();
}

// The header gives the length of the JSON before compression, as Triton's clients do.
TEST_F(InferHttp, CompressedRawInputs) {
  service_.AddEcho("large", {Spec("x", proto::UINT8, {-1})}, {"y"});
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[300000],"datatype":"UINT8","parameters":{"binary_data_size":300000}}],)"
      R"("parameters":{"binary_data_output":true}})";
  std::string raw(300000, ' ');
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<char>(i * 7 + i / 251);
  const ClientResponse response =
      Infer(Deflated(json + raw, BodyCoding::kGzip),
            Cat("Content-Encoding: gzip\r\nInference-Header-Content-Length: ", json.size(), "\r\n"), "large");
  ASSERT_EQ(response.code, 200) << response.body;
  EXPECT_TRUE(response.body.ends_with(raw));
}

TEST_F(InferHttp, BadJsonNeverReachesTheService) {
  for (const std::string_view bad :
       {"{", "null", "[]", "{\"inputs\":{}}", "{\"inputs\":[1]}", "{\"inputs\":[]}", "{\"inputs\":[{}]}",
        "\xff", "{}x", R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]} trailing)",
        R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,"2"]}]})",
        R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1]}]})",
        R"({"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]})",
        R"({"inputs":[{"name":"x","shape":[4294967296,4294967296,2],"datatype":"FP32","data":[1,2]}]})",
        R"({"inputs":[{"name":"x","shape":[1.5,2],"datatype":"FP32","data":[1,2]}]})"}) {
    const ClientResponse response = Infer(bad);
    EXPECT_EQ(response.code, 400) << bad;
    EXPECT_TRUE(response.body.starts_with("{\"error\":\"")) << bad;
  }
  EXPECT_EQ(service_.calls(), 0U);
  service_.WaitForPlaces();
}

TEST_F(InferHttp, FailuresOfTheServiceAreMapped) {
  service_.AnswerWith(absl::ResourceExhaustedError("queue full"), std::chrono::seconds(4));
  const ClientResponse full = Infer(kBody);
  EXPECT_EQ(full.code, 503);
  EXPECT_EQ(full.headers.at("retry-after"), "4");
  EXPECT_EQ(full.body, R"({"error":"queue full"})");
  service_.AnswerWith(absl::DeadlineExceededError("timeout expired"));
  const ClientResponse late = Infer(kBody);
  EXPECT_EQ(late.code, 503);
  EXPECT_FALSE(late.headers.contains("retry-after"));
  service_.AnswerWith(absl::UnimplementedError("no"));
  EXPECT_EQ(Infer(kBody).code, 501);
  service_.AnswerWith(absl::InternalError("broken"));
  EXPECT_EQ(Infer(kBody).code, 500);
  service_.AnswerWith(MarkDiskFull(absl::UnavailableError("disk full")));
  EXPECT_EQ(Infer(kBody).code, 507);
  service_.AnswerWith(absl::OkStatus());
  service_.RefusePlaces(true);
  EXPECT_EQ(Infer(kBody).code, 503);
  service_.RefusePlaces(false);
  EXPECT_EQ(Infer(kBody).code, 200);
}

TEST_F(InferHttp, AFunctionRemovedWhileRequestsWaitAnswersThem) {
  service_.Hold(true);
  client_->Send(Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ", kBody.size(),
                    "\r\n\r\n", kBody));
  service_.WaitForHeld(1);
  service_.Remove("f");
  service_.ReleaseAll();
  EXPECT_EQ(client_->Read().code, 404);
}

TEST_F(InferHttp, TimeoutAndPriorityArePassedOn) {
  std::string body(kBody);
  body.insert(1, R"("parameters":{"timeout":2500,"priority":2},)");
  EXPECT_EQ(Infer(body).code, 200);
  EXPECT_EQ(service_.last_timeout(), std::chrono::microseconds(2500));
  EXPECT_EQ(service_.last_priority(), 2U);
}

TEST_F(InferHttp, AClientThatGoesAwayCancelsItsCall) {
  service_.Hold(true);
  SocketClient gone(server_->port());
  gone.Send(Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nContent-Length: ", kBody.size(), "\r\n\r\n",
                kBody));
  service_.WaitForHeld(1);
  gone.Close();
  service_.WaitForCancelled(1);
  service_.Hold(false);
  EXPECT_EQ(Infer(kBody).code, 200);
  service_.WaitForPlaces();
  EXPECT_NE(client_->Ask("GET", "/metrics").body.find("{code=\"499\",function=\"f\"} 1\n"),
            std::string::npos);
}

TEST_F(InferHttp, OutputsAreGivenBackWhenTheResponseIsOut) {
  const std::string json = R"({"parameters":{"binary_data_output":true},"inputs":[{"name":"x","shape":[1,2],)"
                           R"("datatype":"FP32","data":[1,2]}]})";
  EXPECT_EQ(Infer(json).code, 200);
  EXPECT_EQ(client_->Ask("GET", "/v2").code, 200);  // when this request is served the one before has ended
  EXPECT_EQ(service_.open_outputs(), 0U);
}

}  // namespace
}  // namespace troupe::gateway
