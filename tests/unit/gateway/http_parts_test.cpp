// The parts of a connection that need no socket: its pace, its charges, the form of its answers.
#include <gtest/gtest.h>

#include <string>

#include "gateway/http_charges.hpp"
#include "gateway/http_head.hpp"
#include "gateway/http_pace.hpp"
#include "gateway/http_response_writer.hpp"

namespace troupe::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr HttpPace::SteadyTime kNow{std::chrono::hours(1)};

HttpServerOptions Options() {
  HttpServerOptions options;
  options.idle_timeout = seconds(75);
  options.head_timeout = seconds(10);
  options.transfer_timeout = seconds(30);
  options.short_transfer_timeout = seconds(2);
  options.handshake_timeout = seconds(5);
  options.slowest = BytesPerSecond{1000};
  return options;
}

TEST(HttpPace, EachStateHasItsTime) {
  const HttpServerOptions options = Options();
  struct Row {
    HttpState state;
    Duration allowed;
  };
  for (const auto& [state, allowed] :
       {Row{HttpState::kHandshake, seconds(5)}, Row{HttpState::kIdle, seconds(75)},
        Row{HttpState::kHead, seconds(10)}, Row{HttpState::kBody, seconds(30)},
        Row{HttpState::kWriting, seconds(30)}, Row{HttpState::kLingering, seconds(1)}}) {
    HttpPace pace(options, false, kNow);
    pace.Enter(state, 0, kNow);
    EXPECT_FALSE(pace.IsLate(kNow + allowed - milliseconds(1))) << static_cast<int>(state);
    EXPECT_TRUE(pace.IsLate(kNow + allowed)) << static_cast<int>(state);
  }
}

TEST(HttpPace, AReplyMayTakeAnyTime) {
  const HttpServerOptions options = Options();
  HttpPace pace(options, true, kNow);
  pace.Enter(HttpState::kWaiting, 0, kNow);
  EXPECT_FALSE(pace.IsLate(kNow + std::chrono::hours(100)));
}

TEST(HttpPace, BytesBuyTimeButNoneToStandStillIn) {
  const HttpServerOptions options = Options();
  HttpPace pace(options, false, kNow);
  pace.Enter(HttpState::kBody, 0, kNow);
  pace.Enter(HttpState::kBody, 20'000, kNow + seconds(20));  // 20 s more, at 1,000 bytes each second
  EXPECT_EQ(pace.entered(), kNow);
  EXPECT_FALSE(pace.IsLate(kNow + seconds(50) - milliseconds(1)));
  EXPECT_TRUE(pace.IsLate(kNow + seconds(50)));
  pace.Enter(HttpState::kBody, 1'000'000, kNow + seconds(21));  // much more than it needs
  EXPECT_FALSE(pace.IsLate(kNow + seconds(51) - milliseconds(1)));
  EXPECT_TRUE(pace.IsLate(kNow + seconds(51)));
}

TEST(HttpPace, AnotherStateBeginsAnew) {
  const HttpServerOptions options = Options();
  HttpPace pace(options, false, kNow);
  pace.Enter(HttpState::kHead, 0, kNow);
  pace.Enter(HttpState::kBody, 0, kNow + seconds(9));
  EXPECT_EQ(pace.entered(), kNow + seconds(9));
  EXPECT_FALSE(pace.IsLate(kNow + seconds(38)));
}

TEST(HttpPace, ShortMemoryShortensUntilBytesMove) {
  const HttpServerOptions options = Options();
  HttpPace pace(options, false, kNow);
  pace.Enter(HttpState::kBody, 0, kNow);
  pace.Shorten();
  EXPECT_TRUE(pace.IsLate(kNow + seconds(2)));
  pace.Enter(HttpState::kBody, 0, kNow + seconds(1));
  EXPECT_FALSE(pace.IsLate(kNow + seconds(2)));
}

TEST(HttpPace, AConnectionForProbesHasASecond) {
  const HttpServerOptions options = Options();
  HttpPace pace(options, true, kNow);
  pace.Enter(HttpState::kIdle, 0, kNow);
  EXPECT_FALSE(pace.IsLate(kNow + milliseconds(999)));
  EXPECT_TRUE(pace.IsLate(kNow + seconds(1)));
}

HttpServerOptions SmallBudgets() {
  HttpServerOptions options;
  options.max_inflight = Bytes(100);
  options.max_inflight_client = Bytes(60);
  options.max_answers = KiB(200);
  options.max_answers_client = KiB(100);
  options.max_handshakes = 2;
  options.max_handshakes_client = 1;
  return options;
}

TEST(HttpCharges, ABodyIsChargedForWhatIsMoreThanBefore) {
  HttpBudgets budgets(SmallBudgets());
  HttpCharges charges(budgets, "a");
  EXPECT_FALSE(charges.HoldBody(40, kNow));
  EXPECT_FALSE(charges.HoldBody(30, kNow));
  EXPECT_FALSE(charges.HoldBody(60, kNow));
  EXPECT_EQ(budgets.bodies.used(), Bytes(60));
  const auto refusal = charges.HoldBody(61, kNow);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, 503);
  EXPECT_NE(refusal->body.find("of this client's address"), std::string::npos) << refusal->body;
  EXPECT_EQ(budgets.bodies.used(), Bytes(60));
  EXPECT_TRUE(charges.IsShort(HttpState::kBody, kNow));
  EXPECT_FALSE(charges.IsShort(HttpState::kWriting, kNow));
  charges.ReturnAll();
  EXPECT_EQ(budgets.bodies.used(), Bytes(0));
  charges.ReturnAll();
  EXPECT_EQ(budgets.bodies.used(), Bytes(0));
}

TEST(HttpCharges, OnlyLargeAnswersAreCharged) {
  HttpBudgets budgets(SmallBudgets());
  HttpCharges charges(budgets, "a");
  EXPECT_FALSE(charges.HoldAnswer(KiB(64).count(), kNow));
  EXPECT_EQ(budgets.answers.used(), Bytes(0));
  EXPECT_FALSE(charges.HoldAnswer(KiB(100).count(), kNow));
  EXPECT_EQ(budgets.answers.used(), KiB(100));
  // The share of the address is full: neither an answer nor a request that has one is taken.
  HttpCharges second(budgets, "a");
  EXPECT_TRUE(second.Look(false));
  EXPECT_TRUE(second.HoldAnswer(KiB(65).count(), kNow));
  EXPECT_FALSE(HttpCharges(budgets, "b").Look(true));
  charges.ReturnAll();
  EXPECT_FALSE(second.Look(false));
}

TEST(HttpCharges, ARequestWithoutABodyNeedsNoRoomForOne) {
  HttpBudgets budgets(SmallBudgets());
  HttpCharges charges(budgets, "a");
  EXPECT_FALSE(charges.HoldBody(60, kNow));
  EXPECT_TRUE(charges.Look(true));
  EXPECT_FALSE(charges.Look(false));
}

TEST(HttpCharges, HandshakesAreCountedByAddress) {
  HttpBudgets budgets(SmallBudgets());
  HttpCharges first(budgets, "a");
  HttpCharges second(budgets, "a");
  EXPECT_TRUE(first.BeginHandshake(kNow));
  EXPECT_FALSE(second.BeginHandshake(kNow));
  EXPECT_TRUE(second.IsShort(HttpState::kHandshake, kNow));
  second.ReturnAll();
  EXPECT_EQ(budgets.handshakes.used(), Bytes(1));
  first.ReturnAll();
  EXPECT_TRUE(second.BeginHandshake(kNow));
}

std::string Written(HttpResponseWriter& writer, const HttpResponse& response, HttpForm form) {
  std::string out;
  for (const auto& buffer : writer.Gather(response, form, "Date: today\r\n"))
    out.append(static_cast<const char*>(buffer.data()), buffer.size());
  return out;
}

TEST(HttpResponseWriter, PutsTheHeadBeforeTheBodyAndItsParts) {
  HttpResponseWriter writer;
  writer.SetHeaders("Vary: Origin\r\n");
  HttpResponse response;
  response.headers = "A: b\r\n";
  response.body = "{}";
  response.parts.push_back(OutputBuffer::Inline("xyz"));
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\nDate: today\r\nA: b\r\n"
      "Vary: Origin\r\n";
  EXPECT_EQ(Written(writer, response, {}), head + "\r\n{}xyz");
  EXPECT_EQ(Written(writer, response, {.head_only = true}), head + "\r\n");
  EXPECT_EQ(Written(writer, response, {.close = true}), head + "Connection: close\r\n\r\n{}xyz");
  EXPECT_EQ(Written(writer, response, {.version = 10}), head + "Connection: keep-alive\r\n\r\n{}xyz");
}

TEST(HttpResponseWriter, ALongBodyIsNotCopied) {
  HttpResponseWriter writer;
  HttpResponse response;
  response.body.assign(KiB(32).count() + 1, 'a');
  const auto buffers = writer.Gather(response, {}, "");
  ASSERT_EQ(buffers.size(), 2U);
  EXPECT_EQ(buffers[1].data(), response.body.data());
}

TEST(HttpResponseWriter, AnAnswerWithoutContentSaysNoLength) {
  HttpResponseWriter writer;
  HttpResponse response;
  response.code = 204;
  EXPECT_EQ(Written(writer, response, {}).find("Content-"), std::string::npos);
}

TEST(HttpHead, WhatTwoServersCouldReadDifferentlyIsRefused) {
  namespace http = boost::beast::http;
  HttpHead head;
  head.version(11);
  EXPECT_EQ(CheckFields(head)->code, 400);  // no host
  head.insert(http::field::host, "a");
  EXPECT_FALSE(CheckFields(head));
  head.insert("Idempotency-Key", "1");
  EXPECT_FALSE(CheckFields(head));
  head.insert("Idempotency-Key", "2");
  EXPECT_EQ(CheckFields(head)->code, 400);
  head.erase("Idempotency-Key");
  head.insert(http::field::transfer_encoding, "chunked");
  EXPECT_FALSE(CheckFields(head));
  head.insert(http::field::transfer_encoding, "chunked");
  ASSERT_TRUE(CheckFields(head));
  EXPECT_EQ(CheckFields(head)->code, 501);
  EXPECT_TRUE(CheckFields(head)->close);
}

TEST(HttpHead, AFoldedLineIsFound) {
  EXPECT_FALSE(IsFolded("GET / HTTP/1.1\r\nA: b\r\n\r\n"));
  EXPECT_TRUE(IsFolded("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"));
  EXPECT_TRUE(IsFolded("GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n"));
}

}  // namespace
}  // namespace troupe::gateway
