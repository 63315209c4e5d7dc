// A whole front over fakes, on a port that the system chooses.
#pragma once

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <memory>

#include "gateway/gateway_server.hpp"
#include "gateway/text.hpp"
#include "tests/unit/gateway/fake_cluster_admin.hpp"
#include "tests/unit/gateway/fake_inference_service.hpp"
#include "tests/unit/gateway/socket_client.hpp"

namespace troupe::gateway {

class GatewayFixture : public testing::Test {
 protected:
  GatewayFixture() {
    options_.http.sweep_interval = std::chrono::milliseconds(5);
    options_.max_request = MiB(1);
    service_.AddEcho("f", {Spec("x", proto::FP32, {-1, 2})}, {"y"});
    service_.AddEcho("two", {Spec("a", proto::UINT8, {-1}), Spec("s", proto::BYTES, {-1})}, {"b", "t"});
    auto server = GatewayServer::Start(options_, service_, &admin_, registry_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<SocketClient>(server_->port());
  }

  static constexpr std::string_view kBody =
      R"({"id":"7","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2.5]}]})";
  static constexpr std::string_view kAnswer =
      R"({"model_name":"f","model_version":"1","id":"7","outputs":)"
      R"([{"name":"y","datatype":"FP32","shape":[1,2],"data":[1.0,2.5]}]})";

  GatewayOptions options_;
  FakeInferenceService service_;
  FakeClusterAdmin admin_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<GatewayServer> server_;
  std::unique_ptr<SocketClient> client_;
};

}  // namespace troupe::gateway
