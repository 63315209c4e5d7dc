#include "gateway/operations_server.hpp"

#include <gtest/gtest.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/unit/gateway/socket_client.hpp"

namespace troupe::gateway {
namespace {

TEST(OperationsServer, MetricsHealthAndLogLevel) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildGauge().Name("troupe_queue_depth").Help("h").Register(*registry).Add({}).Set(4);
  std::atomic<bool> healthy{true};
  OperationsOptions options;
  options.health = [&] { return healthy ? absl::OkStatus() : absl::UnavailableError("no manager"); };
  std::vector<std::string> changes;
  options.on_log_level = [&](const std::string& who, const std::string& level) {
    changes.push_back(who + " " + level);
  };
  const auto server = OperationsServer::Start(options, registry);
  ASSERT_TRUE(server.ok()) << server.status();
  SocketClient client((*server)->port());
  EXPECT_NE(client.Ask("GET", "/metrics").body.find("troupe_queue_depth 4\n"), std::string::npos);
  EXPECT_EQ(client.Ask("GET", "/healthz").body, R"({"status":"ok"})");
  healthy = false;
  const ClientResponse ill = client.Ask("GET", "/healthz");
  EXPECT_EQ(ill.code, 503);
  EXPECT_EQ(ill.body, R"({"error":"no manager"})");

  const auto before = spdlog::get_level();
  EXPECT_EQ(client.Ask("PUT", "/loglevel", "error\n").body, R"({"level":"error"})");
  EXPECT_EQ(spdlog::get_level(), spdlog::level::err);
  EXPECT_EQ(client.Ask("GET", "/loglevel").body, R"({"level":"error"})");
  const ClientResponse bad = client.Ask("PUT", "/loglevel", "loud");
  EXPECT_EQ(bad.code, 400);
  EXPECT_NE(bad.body.find("trace, debug, info"), std::string::npos);
  EXPECT_EQ(client.Ask("PUT", "/loglevel", "").code, 400);
  EXPECT_EQ(changes, (std::vector<std::string>{"127.0.0.1 error"}));
  spdlog::set_level(before);

  EXPECT_EQ(client.Ask("POST", "/loglevel", "info").headers.at("allow"), "GET, HEAD, PUT");
  EXPECT_EQ(client.Ask("POST", "/metrics").code, 405);
  EXPECT_EQ(client.Ask("GET", "/").code, 404);
}

// Connections that send nothing use up no room: the oldest of them is closed for a new one, and counted.
TEST(OperationsServer, ConnectionsThatAskNothingMakeRoom) {
  OperationsOptions options;
  options.http.max_connections = 3;
  options.http.probe_connections = 8;  // room until the connections that were told to close have done so
  options.http.idle_timeout = std::chrono::hours(1);
  const auto server = OperationsServer::Start(options, std::make_shared<prometheus::Registry>());
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::unique_ptr<SocketClient>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<SocketClient>((*server)->port()));
  SocketClient client((*server)->port());
  EXPECT_EQ(client.Ask("GET", "/healthz").code, 200);
  EXPECT_GE((*server)->load().refused.crowded_out, 6u);
}

TEST(OperationsServer, WhatIsNotHttpIsCounted) {
  const auto server = OperationsServer::Start(OperationsOptions(), std::make_shared<prometheus::Registry>());
  ASSERT_TRUE(server.ok()) << server.status();
  SocketClient client((*server)->port());
  client.Send("what is this\r\n\r\n");
  EXPECT_EQ(client.Read().code, 400);
  EXPECT_EQ((*server)->load().refused.broken, 1u);
}

}  // namespace
}  // namespace troupe::gateway
