// Requests with an Idempotency-Key: first the table alone, then requests over real sockets.
#include "gateway/idempotency.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "gateway/http_body.hpp"
#include "gateway/infer_exchange.hpp"
#include "tests/unit/gateway/gateway_fixture.hpp"

namespace troupe::gateway {
namespace {

using std::chrono::seconds;
using Verdict = IdempotencyTable::Verdict;

constexpr Time kStart = Time(seconds(1000));

IdempotencyTable::AnswerPtr AnswerOf(std::string body, int code = 200) {
  return std::make_shared<const IdempotencyTable::Answer>(
      IdempotencyTable::Answer{.code = code, .headers = {}, .body = std::move(body)});
}

class IdempotencyTableTest : public testing::Test {
 protected:
  IdempotencyTable::Decision Begin(IdempotencyTable& table, const std::string& key, Duration at = {},
                                   const std::string& body = "body") {
    return table.Begin(key, body, kStart + at,
                       [this](const IdempotencyTable::AnswerPtr& answer) { heard_.push_back(answer->body); });
  }
  std::vector<std::string> heard_;
};

TEST_F(IdempotencyTableTest, AClaimIsForgottenWithTheClientOfTheOnlyRequest) {
  IdempotencyTable table;
  IdempotencyClaim none(table);
  EXPECT_TRUE(none.Abandon()) << "a request without a key need not run any more";
  const auto hear = [this](const IdempotencyTable::AnswerPtr& answer) { heard_.push_back(answer->body); };
  IdempotencyClaim first(table);
  EXPECT_EQ(first.Begin("k", "body", kStart, hear).verdict, Verdict::kRun);
  EXPECT_TRUE(first.runs());
  IdempotencyClaim second(table);
  EXPECT_EQ(second.Begin("k", "body", kStart, hear).verdict, Verdict::kWait);
  EXPECT_FALSE(second.runs());
  EXPECT_FALSE(first.Abandon()) << "the second waits for its answer";
  EXPECT_FALSE(second.Abandon()) << "it did not run";
  first.Finish(AnswerOf("answer"), kStart);
  EXPECT_TRUE(heard_.empty()) << "the client of the second has gone";
  IdempotencyClaim third(table);
  EXPECT_EQ(third.Begin("k", "body", kStart, hear).verdict, Verdict::kKept);
  IdempotencyClaim alone(table);
  EXPECT_EQ(alone.Begin("other", "body", kStart, hear).verdict, Verdict::kRun);
  EXPECT_TRUE(alone.Abandon());
}

TEST_F(IdempotencyTableTest, TheSecondWaitsForTheFirstAndTheThirdGetsWhatIsKept) {
  IdempotencyTable table;
  const auto first = Begin(table, "k");
  ASSERT_EQ(first.verdict, Verdict::kRun);
  EXPECT_EQ(Begin(table, "k").verdict, Verdict::kWait);
  EXPECT_EQ(Begin(table, "k", {}, "other").verdict, Verdict::kOtherBody);
  EXPECT_EQ(Begin(table, "another").verdict, Verdict::kRun);
  EXPECT_TRUE(heard_.empty());
  table.Finish("k", first.run, AnswerOf("answer"), kStart + seconds(1));
  EXPECT_EQ(heard_, std::vector<std::string>{"answer"});
  const auto kept = Begin(table, "k", seconds(60));
  ASSERT_EQ(kept.verdict, Verdict::kKept);
  EXPECT_EQ(kept.answer->body, "answer");
  EXPECT_EQ(Begin(table, "k", seconds(60), "other").verdict, Verdict::kOtherBody);
  EXPECT_EQ(Begin(table, "k", seconds(61), "other").verdict, Verdict::kRun) << "the answer is kept for 60 s";
  EXPECT_EQ(table.bytes(), Bytes(0));
}

TEST_F(IdempotencyTableTest, WhatFailedIsToldToThoseWhoWaitedAndRunsAgainAfterwards) {
  IdempotencyTable table;
  const auto first = Begin(table, "k");
  EXPECT_EQ(Begin(table, "k").verdict, Verdict::kWait);
  table.Finish("k", first.run, AnswerOf("busy", 503), kStart);
  EXPECT_EQ(heard_, std::vector<std::string>{"busy"});
  const auto again = Begin(table, "k");
  EXPECT_EQ(again.verdict, Verdict::kRun);
  table.Finish("k", first.run, AnswerOf("late"), kStart);
  EXPECT_EQ(Begin(table, "k").verdict, Verdict::kWait)
      << "a late answer of the earlier request does not answer this one";
}

TEST_F(IdempotencyTableTest, AFirstWhoseClientWentAwayGoesOnForThoseWhoWait) {
  IdempotencyTable table;
  const auto alone = Begin(table, "alone");
  EXPECT_TRUE(table.Abandon("alone", alone.run));
  EXPECT_EQ(Begin(table, "alone").verdict, Verdict::kRun);
  EXPECT_FALSE(table.Abandon("alone", alone.run) && table.size() == 0)
      << "the new request with the key stays";
  const auto first = Begin(table, "k");
  EXPECT_EQ(Begin(table, "k").verdict, Verdict::kWait);
  EXPECT_FALSE(table.Abandon("k", first.run));
  table.Finish("k", first.run, AnswerOf("answer"), kStart);
  EXPECT_EQ(heard_, std::vector<std::string>{"answer"});
}

TEST_F(IdempotencyTableTest, EverythingIsBounded) {
  IdempotencyTable table({.max_keys = 3, .max_bytes = Bytes(10), .max_answer = Bytes(6), .max_waiting = 1});
  std::vector<std::uint64_t> runs;
  for (const char* key : {"a", "b", "c"}) runs.push_back(Begin(table, key).run);
  EXPECT_EQ(Begin(table, "d").verdict, Verdict::kFull) << "requests that run are not forgotten";
  EXPECT_EQ(Begin(table, "a").verdict, Verdict::kWait);
  EXPECT_EQ(Begin(table, "a").verdict, Verdict::kFull) << "one request waits already";
  table.Finish("a", runs[0], AnswerOf("12345"), kStart);
  table.Finish("b", runs[1], AnswerOf("1234567"), kStart);
  EXPECT_EQ(Begin(table, "b").verdict, Verdict::kRun) << "the answer was too long to be kept";
  table.Finish("c", runs[2], AnswerOf("123456"), kStart);
  EXPECT_LE(table.bytes(), Bytes(10));
  EXPECT_EQ(Begin(table, "a").verdict, Verdict::kRun) << "the oldest answer made room";
  EXPECT_EQ(Begin(table, "d").verdict, Verdict::kRun) << "the answer of 'c' made room, too";
  EXPECT_EQ(table.size(), 3u);
}

TEST_F(IdempotencyTableTest, AWaiterThatLeavesIsForgottenAndMakesRoom) {
  IdempotencyTable table({.max_waiting = 2});
  const auto first = Begin(table, "k");
  const auto stays = Begin(table, "k");
  auto held = std::make_shared<int>();
  const auto leaves = table.Begin("k", "body", kStart,
                                  [held](const auto&) { FAIL() << "a request that has left was answered"; });
  ASSERT_EQ(leaves.verdict, Verdict::kWait);
  EXPECT_EQ(Begin(table, "k").verdict, Verdict::kFull);
  table.Leave("k", leaves.waiter);
  EXPECT_EQ(held.use_count(), 1) << "the closure of the request is released";
  EXPECT_EQ(Begin(table, "k").verdict, Verdict::kWait);
  table.Leave("k", leaves.waiter);
  EXPECT_EQ(Begin(table, "k").verdict, Verdict::kFull)
      << "a request leaves once, and its number removes no other one";
  table.Finish("k", first.run, AnswerOf("answer"), kStart);
  EXPECT_EQ(heard_, (std::vector<std::string>{"answer", "answer"}));
  table.Leave("k", stays.waiter);
}

TEST_F(IdempotencyTableTest, WhenAllWhoWaitedHaveLeftTheFirstCanBeAbandoned) {
  IdempotencyTable table;
  const auto first = Begin(table, "k");
  table.Leave("k", Begin(table, "k").waiter);
  EXPECT_TRUE(table.Abandon("k", first.run));
  EXPECT_EQ(table.size(), 0u);
}

TEST(TextBody, ADroppedOneGivesItsMemoryBack) {
  TextBody body;
  static_cast<void>(body.Next(1 << 20));
  body.Drop();
  EXPECT_TRUE(body.text().empty());
  EXPECT_LT(body.text().capacity(), 64u);
}

// Exchanges alone, on one thread, so that the test sees what they hold.
class IdempotencyExchange : public testing::Test {
 protected:
  IdempotencyExchange() {
    service_.AddEcho("f", {Spec("x", proto::FP32, {-1, 2})}, {"y"});
    service_.Hold(true);
  }
  std::shared_ptr<HttpExchange> Post(std::optional<HttpResponse>& answer) {
    constexpr std::string_view kBody =
        R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]})";
    HttpRequestHead head{"POST", "/v2/models/f/infer", "", ""};
    head.idempotency_key = "mine";
    auto exchange = MakeInferExchange("f", "", head, SharedClient(), {service_, metrics_, table_, MiB(1)});
    const auto span = exchange->NextSpan(kBody.size());
    EXPECT_EQ(span->size(), kBody.size());
    std::memcpy(span->data(), kBody.data(), kBody.size());
    exchange->Finish([&answer](MakeResponse make) { answer = make(); });
    return exchange;
  }

  FakeInferenceService service_;
  RequestMetrics metrics_{std::make_shared<prometheus::Registry>()};
  IdempotencyTable table_{{.max_waiting = 1}};
};

TEST_F(IdempotencyExchange, ARequestThatWaitsDropsItsBody) {
  std::optional<HttpResponse> first_answer;
  std::optional<HttpResponse> second_answer;
  const auto first = Post(first_answer);
  const auto second = Post(second_answer);
  ASSERT_FALSE(second_answer) << second_answer->body;
  EXPECT_EQ(service_.open_places(), 1u) << "only the input of the first request is held";
  const auto read_again =
      second->NextSpan(1);  // no server calls this again; it would read the body once more
  EXPECT_EQ(read_again.status().message(), "JSON: object expected at byte 0") << "the body is still held";
  service_.ReleaseAll();
  ASSERT_TRUE(second_answer);
  EXPECT_EQ(second_answer->body, first_answer->body);
}

TEST_F(IdempotencyExchange, AWaitingRequestWhoseClientGoesAwayIsForgotten) {
  std::optional<HttpResponse> first_answer;
  std::optional<HttpResponse> gone_answer;
  std::optional<HttpResponse> answer;
  const auto first = Post(first_answer);
  auto gone = Post(gone_answer);
  const std::weak_ptr<HttpExchange> trace = gone;
  gone->Abandon();
  gone.reset();
  EXPECT_TRUE(trace.expired()) << "the table holds the exchange";
  const auto retry = Post(answer);
  EXPECT_FALSE(answer) << "the request was refused, as if the one that has gone still waited: "
                       << answer->body;
  service_.ReleaseAll();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, 200);
  EXPECT_FALSE(gone_answer);
}

TEST(IdempotencyKey, HasVisibleCharacters) {
  for (const std::string& good : {std::string("k"), std::string(128, 'k'), std::string("a-b_c.d:{}/1")})
    EXPECT_TRUE(CheckIdempotencyKey(good).ok()) << good;
  for (const std::string& bad :
       {std::string(), std::string(129, 'k'), std::string("a b"), std::string("\x80")})
    EXPECT_FALSE(CheckIdempotencyKey(bad).ok()) << bad;
}

class IdempotencyHttp : public GatewayFixture {
 protected:
  static constexpr std::string_view kKey = "Idempotency-Key: mine\r\n";
  static constexpr std::string_view kOther =
      R"({"id":"7","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,3.5]}]})";
  ClientResponse Infer(SocketClient& client, std::string_view body = kBody) {
    return client.Ask("POST", "/v2/models/f/infer", body, kKey);
  }
  void Post(SocketClient& client, std::string_view body = kBody) {
    client.Send(Cat("POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\n", kKey, "Content-Length: ", body.size(),
                    "\r\n\r\n", body));
  }
};

TEST_F(IdempotencyHttp, TheSameRequestAgainIsGivenTheSameAnswer) {
  const auto first = Infer(*client_);
  EXPECT_EQ(first.code, 200);
  EXPECT_EQ(first.headers.count("idempotent-replayed"), 0u);
  SocketClient other(server_->port());
  const auto again = Infer(other);
  EXPECT_EQ(again.code, 200);
  EXPECT_EQ(again.body, first.body);
  EXPECT_EQ(again.headers.at("idempotent-replayed"), "true");
  EXPECT_EQ(service_.calls(), 1u);
  const auto different = Infer(other, kOther);
  EXPECT_EQ(different.code, 422);
  EXPECT_NE(different.body.find("choose a new key"), std::string::npos) << different.body;
  EXPECT_EQ(service_.calls(), 1u);
  service_.WaitForPlaces();
}

TEST_F(IdempotencyHttp, WhileTheFirstRunsTheSecondWaitsForItsAnswer) {
  service_.Hold(true);
  Post(*client_);
  service_.WaitForHeld(1);
  SocketClient second(server_->port());
  Post(second);
  SocketClient third(server_->port());
  EXPECT_EQ(Infer(third, kOther).code, 422) << "the second request has been read by then";
  service_.ReleaseAll();
  EXPECT_EQ(client_->Read().body, kAnswer);
  EXPECT_EQ(second.Read().body, kAnswer);
  EXPECT_EQ(service_.calls(), 1u);
}

TEST_F(IdempotencyHttp, AFailureIsNotKept) {
  service_.AnswerWith(absl::UnavailableError("no node"));
  EXPECT_EQ(Infer(*client_).code, 503);
  service_.AnswerWith(absl::OkStatus());
  EXPECT_EQ(Infer(*client_).code, 200);
  EXPECT_EQ(service_.calls(), 2u);
}

TEST_F(IdempotencyHttp, AClientThatGoesAwayAloneCancelsAndItsKeyIsFree) {
  service_.Hold(true);
  {
    SocketClient leaving(server_->port());
    Post(leaving);
    service_.WaitForHeld(1);
  }
  service_.WaitForCancelled(1);
  service_.Hold(false);
  EXPECT_EQ(Infer(*client_).code, 200);
  EXPECT_EQ(service_.calls(), 2u);
}

TEST_F(IdempotencyHttp, ABadKeyIsRefused) {
  const auto response = client_->Ask("POST", "/v2/models/f/infer", kBody,
                                     Cat("Idempotency-Key: ", std::string(129, 'k'), "\r\n"));
  EXPECT_EQ(response.code, 400);
  EXPECT_NE(response.body.find("Idempotency-Key"), std::string::npos) << response.body;
}

}  // namespace
}  // namespace troupe::gateway
