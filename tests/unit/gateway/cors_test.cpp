// Which web pages may read answers.
#include "gateway/cors.hpp"

#include <gtest/gtest.h>

namespace troupe::gateway {
namespace {

HttpRequestHead Head(std::string_view method, std::string_view origin, std::string_view requested = "") {
  HttpRequestHead head{};
  head.method = method;
  head.origin = origin;
  head.requested_method = requested;
  return head;
}
bool Has(const std::string& headers, const std::string& line) {
  return headers.find(line + "\r\n") != std::string::npos;
}

TEST(Cors, OriginsAreAsBrowsersWriteThem) {
  EXPECT_TRUE(CheckCorsOrigins({"*"}).ok());
  EXPECT_TRUE(CheckCorsOrigins({"https://a.example", "http://localhost:3000", "http://[::1]:80"}).ok());
  for (const auto text : {"a.example", "https://", "https://a.example/", "https://A.example", "null",
                          "*.example", "https://*.example", "://a", "https://a.example/x", "https://a\r\nb"})
    EXPECT_FALSE(CheckCorsOrigins({text}).ok()) << text;
  EXPECT_FALSE(CheckCorsOrigins({"*", "https://a.example"}).ok()) << "any and some contradict each other";
}

TEST(Cors, NamedOriginsAlone) {
  const Cors cors({"https://a.example", "https://b.example"});
  const auto headers = cors.Headers(Head("GET", "https://b.example"));
  EXPECT_TRUE(Has(headers, "Access-Control-Allow-Origin: https://b.example"));
  EXPECT_TRUE(Has(headers, "Vary: Origin"));
  EXPECT_EQ(headers.find("Credentials"), std::string::npos);
  for (const auto other : {"https://c.example", "http://b.example", "https://b.example.evil", "null"})
    EXPECT_EQ(cors.Headers(Head("GET", other)), "Vary: Origin\r\n") << other;
  EXPECT_EQ(cors.Headers(Head("GET", "")), "Vary: Origin\r\n");
}

TEST(Cors, AnyOrigin) {
  const Cors cors({"*"});
  const auto headers = cors.Headers(Head("GET", "https://b.example"));
  EXPECT_TRUE(Has(headers, "Access-Control-Allow-Origin: *"));
  EXPECT_EQ(headers.find("Credentials"), std::string::npos);
  EXPECT_EQ(headers.find("b.example"), std::string::npos);
}

TEST(Cors, PreflightsAreOfBrowsersThatAsk) {
  const Cors off({});
  EXPECT_FALSE(off.IsPreflight(Head("OPTIONS", "https://a.example", "POST")));
  EXPECT_EQ(off.Headers(Head("GET", "https://a.example")), "");
  const Cors cors({"https://a.example"});
  EXPECT_TRUE(cors.IsPreflight(Head("OPTIONS", "https://a.example", "POST")));
  EXPECT_FALSE(cors.IsPreflight(Head("OPTIONS", "https://a.example")));
  EXPECT_FALSE(cors.IsPreflight(Head("OPTIONS", "", "POST")));
  EXPECT_FALSE(cors.IsPreflight(Head("POST", "https://a.example", "POST")));
  const auto answer = Cors::Preflight("POST");
  EXPECT_EQ(answer.code, 204);
  EXPECT_TRUE(Has(answer.headers, "Access-Control-Allow-Methods: POST"));
  EXPECT_NE(answer.headers.find("Authorization"), std::string::npos);
}

}  // namespace
}  // namespace troupe::gateway
