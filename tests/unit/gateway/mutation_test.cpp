// Thousands of seeded mutations of valid requests: for each the front answers or closes the connection, and
// goes on.
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "tests/unit/gateway/gateway_fixture.hpp"

namespace troupe::gateway {
namespace {

std::string Mutate(std::string text, Random& random) {
  for (std::uint64_t n = 1 + random.Below(4); n > 0; --n) {
    if (text.empty()) return text;
    const auto at = static_cast<std::size_t>(random.Below(text.size()));
    switch (random.Below(5)) {
      case 0:
        text[at] = static_cast<char>(random.Below(256));
        break;
      case 1:
        text.erase(at, 1 + random.Below(8));
        break;
      case 2:
        text.insert(at, text.substr(static_cast<std::size_t>(random.Below(text.size())), random.Below(12)));
        break;
      case 3:
        text[at] = "0123456789{}[]\",:-.eE\r\n "[random.Below(24)];
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

class Mutation : public GatewayFixture {
 protected:
  static std::string Request(std::string_view path, std::string_view headers, std::string_view body) {
    return Cat("POST ", path, " HTTP/1.1\r\nHost: x\r\n", headers, "Content-Length: ", body.size(),
               "\r\n\r\n", body);
  }
};

TEST_F(Mutation, BodiesAreAnsweredOneByOne) {
  Random random(11);
  const std::string json =
      R"({"id":"m","parameters":{"timeout":5,"priority":1},"inputs":[{"name":"a","shape":[3],"datatype":"UINT8",)"
      R"("data":[1,2,3]},{"name":"s","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}],)"
      R"("outputs":[{"name":"b","parameters":{"binary_data":true}},{"name":"t"}]})";
  const std::string raw("\1\0\0\0z", 5);
  int good = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string body = i % 2 == 0 ? Mutate(json, random) + raw : json + Mutate(raw, random);
    const std::size_t length = i % 2 == 0 ? body.size() - raw.size() : json.size();
    const ClientResponse response = client_->Ask("POST", "/v2/models/two/infer", body,
                                                 Cat("Inference-Header-Content-Length: ", length, "\r\n"));
    ASSERT_TRUE(response.code == 200 || response.code == 400 || response.code == 501)
        << response.code << " " << body << " " << response.body;
    good += response.code == 200 ? 1 : 0;
  }
  EXPECT_GT(good, 100);
  service_.WaitForPlaces();
}

TEST_F(Mutation, WholeRequestsNeverHurtTheServer) {
  Random random(12);
  const std::string chunked =
      Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n",
          kBody.substr(0, 64), "\r\n", "12\r\n", kBody.substr(64), "\r\n0\r\n\r\n");
  const std::vector<std::string> seeds = {Request("/v2/models/f/infer", "", kBody), chunked,
                                          Request("/v2/repository/index", "Expect: 100-continue\r\n", "{}")};
  for (int i = 0; i < 1500; ++i) {
    SocketClient client(server_->port());
    client.Send(Mutate(seeds[static_cast<std::size_t>(i) % seeds.size()], random));
    client.CloseSending();
    while (client.Read().code != 0) {
    }
  }
  EXPECT_EQ(client_->Ask("POST", "/v2/models/f/infer", kBody).body, kAnswer);
}

}  // namespace
}  // namespace troupe::gateway
