// The HTTP server over real sockets, with a handler that echoes; every test runs in clear and over TLS.
#include "gateway/http_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gateway/text.hpp"
#include "tests/unit/gateway/deflated.hpp"
#include "tests/unit/gateway/echo_handler.hpp"
#include "tests/unit/gateway/https_files.hpp"
#include "tests/unit/gateway/socket_client.hpp"

namespace troupe::gateway {
namespace {

enum class Over { kTcp, kTls };

class HttpServerTest : public testing::TestWithParam<Over> {
 protected:
  HttpServerTest() {
    options_.sweep_interval = std::chrono::milliseconds(5);
    if (GetParam() == Over::kTcp) return;
    options_.handshake_timeout = std::chrono::minutes(1);  // a slow machine must not look like a slow client
    options_.certificate = HttpsFiles::Shared().Load();
    SocketClient::SpeakTls(HttpsFiles::Shared().client());
  }
  ~HttpServerTest() override {
    handler_.Release();
    SocketClient::SpeakTls(nullptr);
  }

  void Start() {
    auto server = HttpServer::Start(options_, handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  HttpServerOptions options_;
  EchoHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

INSTANTIATE_TEST_SUITE_P(Over, HttpServerTest, testing::Values(Over::kTcp, Over::kTls),
                         [](const auto& info) { return info.param == Over::kTcp ? "Tcp" : "Tls"; });

TEST_P(HttpServerTest, ServesOneAfterAnotherOnOneConnection) {
  Start();
  SocketClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    const ClientResponse response = client.Ask("POST", Cat("/", i), "body");
    EXPECT_EQ(response.code, 200);
    EXPECT_EQ(response.body, Cat("POST /", i, " body"));
    EXPECT_TRUE(response.headers.contains("date"));
    EXPECT_FALSE(response.headers.contains("connection"));
  }
  EXPECT_EQ(server_->load().requests, 3U);
  EXPECT_EQ(server_->load().connections, 1U);
}

TEST_P(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  SocketClient client(server_->port());
  std::string all;
  for (int i = 0; i < 200; ++i)
    Append(all, "POST /", i, " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
  ASSERT_TRUE(client.Send(all));
  for (int i = 0; i < 200; ++i) ASSERT_EQ(client.Read().body, Cat("POST /", i, " abc"));
}

TEST_P(HttpServerTest, APipelinedRequestWaitsForTheOneBefore) {
  Start();
  SocketClient client(server_->port());
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n"));
  handler_.WaitForHeld(1);
  EXPECT_EQ(server_->load().requests, 1U);
  handler_.Release();
  EXPECT_EQ(client.Read().body, "GET /hold ");
  EXPECT_EQ(client.Read().body, "GET /next ");
}

TEST_P(HttpServerTest, ARequestByteByByte) {
  Start();
  SocketClient client(server_->port());
  for (const char c : std::string_view("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")) {
    ASSERT_TRUE(client.Send(std::string_view(&c, 1)));
  }
  EXPECT_EQ(client.Read().body, "POST /a hi");
}

TEST_P(HttpServerTest, ChunkedBodies) {
  Start();
  SocketClient client(server_->port());
  const std::string chunked =
      "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;name=value\r\nhello\r\n1\r\n \r\n00a\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";
  ASSERT_TRUE(client.Send(chunked));
  EXPECT_EQ(client.Read().body, "POST /c hello 0123456789");
  for (const char& c : chunked) ASSERT_TRUE(client.Send(std::string_view(&c, 1)));
  EXPECT_EQ(client.Read().body, "POST /c hello 0123456789");
  std::string large = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20; ++i)
    Append(large, "2710\r\n", std::string(10000, static_cast<char>('a' + i)), "\r\n");
  ASSERT_TRUE(client.Send(large + "0\r\n\r\n"));
  const ClientResponse response = client.Read();
  EXPECT_EQ(response.body.size(), 8U + 200000U);
  EXPECT_EQ(response.body.substr(8 + 199999), "t");
}

TEST_P(HttpServerTest, BrokenChunksAreRefused) {
  Start();
  for (const std::string_view bad : {"x\r\nhello\r\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "-1\r\n\r\n",
                                     "fffffffffffffffff\r\nhello\r\n"}) {
    SocketClient client(server_->port());
    client.Send(Cat("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", bad));
    const ClientResponse response = client.Read();
    EXPECT_TRUE(response.code == 400 || response.code == 413) << bad << response.code;
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST_P(HttpServerTest, TooLongIsRefusedBeforeItIsRead) {
  Start();
  {
    SocketClient client(server_->port());
    client.Send(Cat("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: ", (256 << 10) + 1, "\r\n\r\n"));
    EXPECT_EQ(client.Read().code, 413);
    client.CloseSending();
    EXPECT_TRUE(client.AtEnd());
  }
  {
    SocketClient client(server_->port());
    client.Send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n");
    EXPECT_EQ(client.Read().code, 400);
  }
  {
    SocketClient client(server_->port());
    client.Send(Cat("GET /a HTTP/1.1\r\nHost: x\r\nX: ", std::string(20000, 'h'), "\r\n\r\n"));
    EXPECT_EQ(client.Read().code, 431);
  }
  {
    SocketClient client(server_->port());
    client.Send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 300; ++i) {
      if (!client.Send(Cat("400\r\n", std::string(1024, 'x'), "\r\n"))) break;
    }
    EXPECT_EQ(client.Read().code, 413);
  }
}

TEST_P(HttpServerTest, ASmallBodyThatWasNotReadDoesNotEndTheConnection) {
  Start();
  SocketClient client(server_->port());
  EXPECT_EQ(client.Ask("POST", "/early", std::string(50000, 'x')).code, 404);
  EXPECT_EQ(client.Ask("POST", "/refuse", std::string(50000, 'x')).code, 400);
  EXPECT_EQ(client.Ask("GET", "/next").body, "GET /next ");
}

TEST_P(HttpServerTest, ALargeBodyThatWasNotReadDoesNotHideTheResponse) {
  Start();
  SocketClient client(server_->port());
  client.Send(
      Cat("POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", std::string(200000, 'x')));
  const ClientResponse response = client.Read();
  EXPECT_EQ(response.code, 400);
  EXPECT_EQ(response.headers.at("connection"), "close");
}

TEST_P(HttpServerTest, Expect100Continue) {
  Start();
  SocketClient client(server_->port());
  client.Send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.Read().code, 100);
  client.Send("ok");
  EXPECT_EQ(client.Read().body, "POST /e ok");
  client.Send("POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n");
  const ClientResponse refused = client.Read();
  EXPECT_EQ(refused.code, 404);
  EXPECT_EQ(refused.headers.at("connection"), "close");
}

TEST_P(HttpServerTest, ARefusedLongBodyIsNotWaitedFor) {
  Start();
  SocketClient client(server_->port());
  client.Send("POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.Read().code, 404);
}

TEST_P(HttpServerTest, BadRequestsAreRefused) {
  Start();
  for (const std::string_view bad :
       {"nonsense\r\n\r\n", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\xfc\x03\x03\r\n\r\n"}) {
    SocketClient client(server_->port());
    client.Send(bad);
    const ClientResponse response = client.Read();
    EXPECT_EQ(response.code, 400) << bad;
    EXPECT_EQ(response.body.substr(0, 10), "{\"error\":\"") << bad;
  }
}

TEST_P(HttpServerTest, HeadHasNoBodyAndOldClientsAreClosed) {
  Start();
  SocketClient client(server_->port());
  const ClientResponse head = client.Ask("HEAD", "/h");
  EXPECT_EQ(head.headers.at("content-length"), "8");
  EXPECT_EQ(client.Ask("GET", "/n", "", "Connection: close\r\n").headers.at("connection"), "close");
  EXPECT_TRUE(client.AtEnd());
  SocketClient old(server_->port());
  old.Send("GET /o HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.Read().body, "GET /o ");
  EXPECT_TRUE(old.AtEnd());
  SocketClient kept(server_->port());
  kept.Send("GET /o HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(kept.Read().headers.at("connection"), "keep-alive");
}

TEST_P(HttpServerTest, LargeResponsesToSlowReadersArriveWhole) {
  Start();
  SocketClient client(server_->port());
  const ClientResponse response = client.Ask("GET", "/large");
  EXPECT_EQ(response.body.size(), std::size_t{8} << 20);
  EXPECT_EQ(response.body.find_first_not_of('L'), std::string::npos);
}

TEST_P(HttpServerTest, AClientThatGoesAwayAbandonsItsRequest) {
  Start();
  SocketClient closes(server_->port());
  SocketClient resets(server_->port());
  SocketClient pipelined(server_->port());
  closes.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  resets.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  pipelined.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  handler_.WaitForHeld(3);
  closes.Close();
  resets.Close(/*reset=*/true);
  pipelined.Close();
  handler_.WaitForAbandoned(3);
  handler_.Release();  // the replies are for connections that have ended
}

TEST_P(HttpServerTest, BeyondItsConnectionsOnlyProbesAreAnswered) {
  options_.max_connections = 1;
  options_.probe_connections = 1;
  Start();
  SocketClient a(server_->port());
  EXPECT_EQ(a.Ask("GET", "/a").code, 200);
  {
    SocketClient b(server_->port());
    EXPECT_EQ(b.Ask("GET", "/probe").code, 200);
    const ClientResponse refused = b.Ask("GET", "/b");
    EXPECT_EQ(refused.code, 503);
    EXPECT_EQ(refused.headers.at("connection"), "close");
    EXPECT_EQ(refused.headers.at("retry-after"), "1");
    EXPECT_NE(refused.body.find("http-connections"), std::string::npos) << refused.body;
  }
  while (server_->load().connections > 1) std::this_thread::yield();
  SocketClient idle(
      server_->port());  // this connection is closed soon, so that it does not keep a probe's place
  EXPECT_TRUE(idle.AtEnd());
}

TEST_P(HttpServerTest, ManyConnectionsAreRefusedPolitely) {
  options_.max_connections = 2;
  options_.probe_connections = 0;
  Start();
  SocketClient a(server_->port());
  SocketClient b(server_->port());
  EXPECT_EQ(a.Ask("GET", "/a").code, 200);
  EXPECT_EQ(b.Ask("GET", "/b").code, 200);
  SocketClient c(server_->port());
  if (GetParam() == Over::kTls) {  // before the handshake the server cannot send the reason
    EXPECT_EQ(c.tls(), nullptr);
    return;
  }
  const ClientResponse refused = c.Read();
  EXPECT_EQ(refused.code, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_NE(refused.body.find("try again\"}"), std::string::npos);
  EXPECT_TRUE(c.AtEnd());
}

TEST_P(HttpServerTest, ALengthThatIsOnlyClaimedTakesNoMoreThanAPiece) {
  options_.max_inflight = options_.max_inflight_client = KiB(300);
  Start();
  SocketClient idle(server_->port());
  idle.Send("POST /idle HTTP/1.1\r\nHost: x\r\nContent-Length: 250000\r\n\r\nx");
  while (server_->load().inflight.count() == 0) std::this_thread::yield();
  EXPECT_EQ(server_->load().inflight, KiB(64));
  SocketClient other(server_->port());
  EXPECT_EQ(other.Ask("POST", "/b", std::string(200000, 'y')).code, 200);
}

TEST_P(HttpServerTest, ASlowBodyMakesRoomWhenMemoryIsShort) {
  options_.max_inflight = options_.max_inflight_client = KiB(200);
  options_.transfer_timeout = std::chrono::hours(1);
  options_.short_transfer_timeout = Duration::zero();
  options_.slowest = BytesPerSecond{1e12};  // a client that sends less than that is slow
  Start();
  SocketClient slow(server_->port());
  slow.Send(
      Cat("POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", std::string(150000, 'x')));
  while (server_->load().inflight < KiB(150)) std::this_thread::yield();
  SocketClient other(server_->port());
  EXPECT_EQ(other.Ask("POST", "/b", std::string(100000, 'y')).code, 503);
  const ClientResponse dropped = slow.Read();
  EXPECT_EQ(dropped.code, 408);
  EXPECT_NE(dropped.body.find("in time"), std::string::npos);
}

TEST_P(HttpServerTest, ABodyThatCameFastAndThenStopsIsGivenUpToo) {
  options_.transfer_timeout = std::chrono::milliseconds(20);
  options_.slowest = BytesPerSecond{1};  // the bytes that the client has sent allow it two days
  Start();
  SocketClient stalled(server_->port());
  stalled.Send(
      Cat("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", std::string(199999, 'x')));
  EXPECT_EQ(stalled.Read().code, 408);
}

TEST_P(HttpServerTest, AnswersThatWaitForTheirReadersAreBounded) {
  options_.max_answers = options_.max_answers_client = MiB(20);
  options_.transfer_timeout = std::chrono::hours(1);
  Start();
  std::vector<std::unique_ptr<SocketClient>> readers;
  for (int i = 0; i < 2; ++i) {
    readers.push_back(std::make_unique<SocketClient>(server_->port()));
    readers.back()->Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  while (server_->load().answers < MiB(16)) std::this_thread::yield();
  SocketClient third(server_->port());
  const ClientResponse refused = third.Ask("GET", "/large");
  EXPECT_EQ(refused.code, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_NE(refused.body.find("answers that wait to be read"), std::string::npos) << refused.body;
  EXPECT_EQ(third.Ask("GET", "/small").code, 200);
  for (const auto& reader : readers) EXPECT_EQ(reader->Read().body.size(), std::size_t{8} << 20);
  while (server_->load().answers.count() > 0) std::this_thread::yield();
  EXPECT_EQ(third.Ask("GET", "/large").code, 200);
}

TEST_P(HttpServerTest, NothingIsComputedForAnAddressWhoseAnswersFillItsShare) {
  options_.max_answers = MiB(100);
  options_.max_answers_client = MiB(8);
  options_.transfer_timeout = std::chrono::hours(1);
  Start();
  SocketClient reader(server_->port());
  reader.Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  while (server_->load().answers < MiB(8)) std::this_thread::yield();
  SocketClient other(server_->port());
  const ClientResponse refused = other.Ask("GET", "/hold");  // were it held, the test would wait for ever
  EXPECT_EQ(refused.code, 503);
  EXPECT_NE(refused.body.find("of this client's address"), std::string::npos) << refused.body;
  EXPECT_EQ(reader.Read().code, 200);
}

TEST_P(HttpServerTest, AClientThatDoesNotReadIsClosedAfterTheTimeForIt) {
  options_.transfer_timeout = Duration::zero();
  options_.slowest = BytesPerSecond{1e12};
  Start();
  SocketClient reader(server_->port());
  reader.Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  while (server_->load().connections > 0) std::this_thread::yield();
  EXPECT_EQ(server_->load().answers.count(), 0U);
}

TEST_P(HttpServerTest, HeadsThatTwoServersCouldReadDifferentlyAreRefused) {
  Start();
  const struct {
    std::string_view headers;
    int code;
  } cases[] = {
      {"Host: x\r\nHost: y\r\n", 400},
      {"Host: x\r\nHost: x\r\n", 400},
      {"", 400},
      {"Host: x\r\nTransfer-Encoding: gzip, chunked\r\n", 501},
      {"Host: x\r\nTransfer-Encoding: identity\r\n", 501},
      {"Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n", 400},
      {"Host: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n", 400},
      {"Host : x\r\n", 400},
      {"Host: x\r\nContent-Length: +3\r\n", 400},
      {"Host: x\r\nA: b\r\n c\r\nContent-Length: 3\r\n", 400},
      {"Host: x\r\nContent-Length: 3\r\nA: b\r\n\tc\r\n", 400},
      {"Host: x\r\nContent-Length:\r\n 3\r\n", 400},
      {"Host: x\r\nOrigin: https://a\r\nOrigin: https://b\r\nContent-Length: 3\r\n", 400},
  };
  for (const auto& one : cases) {
    SocketClient client(server_->port());
    client.Send(Cat("POST /a HTTP/1.1\r\n", one.headers, "\r\nabc"));
    client.CloseSending();
    const ClientResponse response = client.Read();
    EXPECT_EQ(response.code, one.code) << one.headers << response.body;
  }
}

// The bytes of a decoded body are charged as they appear, and a bomb is given up before it fills the memory.
TEST_P(HttpServerTest, DecompressedBytesAreCharged) {
  options_.max_inflight = options_.max_inflight_client = KiB(100);
  Start();
  SocketClient client(server_->port());
  const auto gzip = "Content-Encoding: gzip\r\n";
  const auto fits = Deflated(std::string(90'000, 'x'), BodyCoding::kGzip);
  EXPECT_EQ(client.Ask("POST", "/a", fits, gzip).body, Cat("POST /a ", std::string(90'000, 'x')));
  const ClientResponse full =
      client.Ask("POST", "/a", Deflated(std::string(110'000, 'x'), BodyCoding::kGzip), gzip);
  EXPECT_EQ(full.code, 503);
  EXPECT_TRUE(full.headers.contains("retry-after"));
  EXPECT_EQ(client.Ask("POST", "/a", fits, gzip).code, 200) << "the refused bytes were given back";
}

TEST_P(HttpServerTest, BytesUnderWayAreBounded) {
  options_.max_inflight = KiB(100);
  Start();
  SocketClient first(server_->port());
  first.Send(Cat("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 80000\r\n\r\n", std::string(80000, 'x')));
  handler_.WaitForHeld(1);
  EXPECT_EQ(server_->load().inflight.count(), 80000U);
  SocketClient second(server_->port());
  const ClientResponse refused = second.Ask("POST", "/b", std::string(40000, 'y'));
  EXPECT_EQ(refused.code, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  handler_.Release();
  EXPECT_EQ(first.Read().code, 200);
  EXPECT_EQ(first.Ask("POST", "/b", std::string(40000, 'y')).code, 200);
}

TEST_P(HttpServerTest, ASilentClientIsGivenUp) {
  options_.idle_timeout = std::chrono::milliseconds(20);
  Start();
  SocketClient silent(server_->port());
  EXPECT_TRUE(silent.AtEnd());
}

TEST_P(HttpServerTest, SlowClientsAreGivenUp) {
  options_.idle_timeout = std::chrono::hours(1);
  options_.head_timeout = std::chrono::milliseconds(20);
  options_.transfer_timeout = std::chrono::milliseconds(20);
  options_.slowest = {0};
  Start();
  SocketClient slow_head(server_->port());
  SocketClient slow_body(server_->port());
  slow_head.Send("GET / HTTP/1.1\r\nHo");
  slow_body.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(slow_head.Read().code, 408);
  EXPECT_TRUE(slow_head.AtEnd());
  EXPECT_EQ(slow_body.Read().code, 408);
}

TEST_P(HttpServerTest, ABodyThatEndsTooEarly) {
  Start();
  SocketClient client(server_->port());
  client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  client.CloseSending();
  EXPECT_EQ(client.Read().code, 400);
  EXPECT_TRUE(client.AtEnd());
}

TEST_P(HttpServerTest, SeveralThreads) {
  options_.threads = 3;
  Start();
  std::vector<std::unique_ptr<SocketClient>> clients;
  for (int i = 0; i < 9; ++i) clients.push_back(std::make_unique<SocketClient>(server_->port()));
  for (auto& client : clients) client->Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  handler_.WaitForHeld(9);
  handler_.Release();
  for (auto& client : clients) EXPECT_EQ(client->Read().body, "GET /hold ");
}

TEST_P(HttpServerTest, StoppingLetsRequestsFinish) {
  Start();
  SocketClient idle(server_->port());
  EXPECT_EQ(idle.Ask("GET", "/a").code, 200);
  SocketClient busy(server_->port());
  busy.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  handler_.WaitForHeld(1);
  std::thread stopper([&] { server_->Stop(std::chrono::seconds(60)); });
  EXPECT_TRUE(idle.AtEnd());
  handler_.Release();
  const ClientResponse last = busy.Read();
  EXPECT_EQ(last.body, "GET /hold ");
  stopper.join();
  EXPECT_TRUE(busy.AtEnd());
}

TEST_P(HttpServerTest, StoppingWithoutGraceAbandonsWhatWaits) {
  Start();
  SocketClient busy(server_->port());
  busy.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  handler_.WaitForHeld(1);
  server_.reset();
  handler_.WaitForAbandoned(1);
  EXPECT_TRUE(busy.AtEnd());
  handler_.Release();  // the server has ended
}

TEST_P(HttpServerTest, APortInUseSaysWhatToDo) {
  Start();
  options_.port = server_->port();
  const auto second = HttpServer::Start(options_, handler_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(Message(second.status()).find("choose another port"), std::string_view::npos);
  options_.address = "localhost";
  EXPECT_EQ(HttpServer::Start(options_, handler_).status().code(), absl::StatusCode::kInvalidArgument);
  options_.address = "192.0.2.1";
  options_.port = 0;
  EXPECT_EQ(HttpServer::Start(options_, handler_).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace troupe::gateway
