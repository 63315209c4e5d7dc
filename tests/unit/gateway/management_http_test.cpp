// Every route of the front but inference, over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/digest.hpp"
#include "base/status.hpp"
#include "tests/unit/gateway/gateway_fixture.hpp"

namespace troupe::gateway {
namespace {

class ManagementHttp : public GatewayFixture {
 protected:
  boost::json::value Get(std::string_view target, int code = 200) {
    const ClientResponse response = client_->Ask("GET", target);
    EXPECT_EQ(response.code, code) << target << " " << response.body;
    return boost::json::parse(response.body);
  }
};

// Without this rule the bytes, which the server no longer counts, would be held for as long as the upload
// takes.
TEST_F(ManagementHttp, ADeploymentWhoseClientGoesAwayIsGivenUp) {
  admin_.HoldDeployments();
  {
    SocketClient leaving(server_->port());
    leaving.Send("POST /v2/troupe/functions/g HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nonnx");
    admin_.WaitForHeld(1);
  }
  admin_.WaitForGivenUp(1);
  EXPECT_EQ(admin_.last_deployment().onnx, "onnx");
  EXPECT_EQ(admin_.last_deployment().client, "127.0.0.1") << "the import's turn is by client";
}

class Uploads : public ManagementHttp {
 protected:
  ClientResponse Send(const std::string& bytes, std::string_view offset, std::string_view complete,
                      const std::string& digest) {
    return client_->Ask("PATCH", "/v2/troupe/uploads/" + digest, bytes,
                        Cat("Upload-Offset: ", offset, "\r\nUpload-Complete: ", complete, "\r\n"));
  }
  const std::string whole_ = "one two three";
  const std::string digest_ = Sha256Hex(whole_);
  const std::string path_ = "/v2/troupe/uploads/" + digest_;
};

TEST_F(Uploads, AFileComesInPartsAndIsDeployedByItsDigest) {
  EXPECT_EQ(client_->Ask("GET", path_).code, 404);
  const auto first = Send("one ", "0", "?0", digest_);
  EXPECT_EQ(first.code, 200) << first.body;
  EXPECT_EQ(first.headers.at("upload-offset"), "4");
  EXPECT_EQ(first.headers.at("upload-complete"), "?0");
  EXPECT_EQ(first.headers.at("upload-limit"), "max-append-size=67108864");
  client_->Send("HEAD " + path_ + " HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto head = client_->Read(true);
  EXPECT_EQ(head.code, 200);
  EXPECT_EQ(head.headers.at("upload-offset"), "4");
  EXPECT_EQ(head.headers.at("cache-control"), "no-store");
  const auto last = Send("two three", "4", "?1", digest_);
  EXPECT_EQ(last.headers.at("upload-complete"), "?1");
  EXPECT_EQ(boost::json::serialize(Get(path_)),
            Cat(R"({"digest":")", digest_, R"(","received":13,"complete":true})"));
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/g?digest=" + digest_).code, 200);
  EXPECT_EQ(admin_.last_deployment().digest, digest_);
  EXPECT_EQ(admin_.last_deployment().onnx, "");
  EXPECT_EQ(client_->Ask("DELETE", path_).code, 200);
  EXPECT_EQ(client_->Ask("GET", path_).code, 404);
}

TEST_F(Uploads, WrongPartsAreRefusedByName) {
  ASSERT_EQ(Send("one ", "0", "?0", digest_).code, 200);
  const auto conflict = Send("two ", "3", "?0", digest_);
  EXPECT_EQ(conflict.code, 409) << conflict.body;
  EXPECT_EQ(conflict.headers.at("upload-offset"), "4");
  EXPECT_EQ(Send("else", "4", "?1", digest_).code, 422) << "the bytes are not those of the digest";
  EXPECT_EQ(Send("x", "0", "?0", "abc").code, 400);
  for (const auto& [offset, complete] : {std::pair("-1", "?0"), std::pair("", "?0"), std::pair("0x4", "?0"),
                                         std::pair("18446744073709551616", "?0"), std::pair("4", ""),
                                         std::pair("4", "1"), std::pair("4", "true")})
    EXPECT_EQ(Send("x", offset, complete, digest_).code, 400) << offset << " " << complete;
  EXPECT_EQ(client_->Ask("PATCH", path_, "x", "Upload-Offset: 4\r\nUpload-Offset: 5\r\n").code, 400);
  EXPECT_EQ(client_->Ask("PUT", path_, "x").code, 405);
  client_->Send("PATCH " + path_ + " HTTP/1.1\r\nHost: x\r\nUpload-Offset: 4\r\nUpload-Complete: ?0\r\n" +
                "Content-Length: 67108865\r\n\r\n");
  EXPECT_EQ(client_->Read().code, 413);
}

TEST_F(Uploads, ADeploymentHasABodyOrADigest) {
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/g?digest=" + digest_, "onnx").code, 400);
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/g").code, 400);
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/g?digest=abc").code, 400);
}

TEST_F(ManagementHttp, Health) {
  for (const std::string_view path : {"/v2/health/live", "/v2/health/ready"}) {
    EXPECT_EQ(boost::json::serialize(Get(path)), R"({"live":true,"ready":true})");
  }
  service_.SetLife(true, false);
  Get("/v2/health/live");
  EXPECT_EQ(boost::json::serialize(Get("/v2/health/ready", 503)), R"({"live":true,"ready":false})");
  Get("/healthz");
  service_.SetLife(false, false);
  Get("/v2/health/live", 503);
  Get("/healthz", 503);
}

TEST_F(ManagementHttp, TheConsoleIsThreeFilesThatAskThisGatewayAlone) {
  const std::pair<std::string_view, std::string_view> files[] = {
      {"/console", "text/html; charset=utf-8"},
      {"/console/console.css", "text/css; charset=utf-8"},
      {"/console/console.js", "text/javascript; charset=utf-8"}};
  for (const auto& [target, type] : files) {
    const auto answer = client_->Ask("GET", target);
    EXPECT_EQ(answer.code, 200) << target;
    EXPECT_EQ(answer.headers.at("content-type"), type);
    EXPECT_EQ(answer.headers.at("cache-control"), "no-store");
    const auto& policy = answer.headers.at("content-security-policy");
    EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self';")) << policy;
    EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos) << policy;
    EXPECT_EQ(client_->Ask("POST", target, "{}").code, 405) << target;
  }
  const auto page = client_->Ask("GET", "/console").body;
  for (const std::string_view part : {"/console/console.css", "/console/console.js"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_NE(client_->Ask("GET", "/console/other.js").body.find("the page is /console"), std::string::npos);
}

TEST_F(ManagementHttp, ParametersThatAnEndpointDoesNotTakeAreRefusedByName) {
  for (const std::string_view target : {"/v2/troupe/functions?limit=3", "/v2/troupe/functions/g?version=1",
                                        "/v2/troupe/runs?workflows=w", "/v2/troupe/cluster?verbose=1"}) {
    const auto answer = Get(target, 400);
    EXPECT_NE(answer.at("error").as_string().find("unknown query parameter"), std::string::npos) << target;
  }
  Get("/v2/troupe/runs?workflow=w");
  EXPECT_EQ(client_->Ask("DELETE", "/v2/troupe/functions/g?version=1").code, 200);
  EXPECT_EQ(client_->Ask("DELETE", "/v2/troupe/functions/g?versions=1").code, 400);
}

TEST_F(ManagementHttp, Metadata) {
  EXPECT_EQ(Get("/v2").at("name").as_string(), "troupe");
  EXPECT_EQ(Get("/v2/models/f").at("inputs").at(0).at("datatype").as_string(), "FP32");
  EXPECT_EQ(Get("/v2/models/f/versions/1").at("versions").at(0).as_string(), "1");
  Get("/v2/models/f/versions/2", 404);
  Get("/v2/models/absent", 404);
  EXPECT_TRUE(Get("/v2/models/f/ready").at("ready").as_bool());
  EXPECT_EQ(Get("/v2/models/f/config").at("max_batch_size").as_int64(), 0);
  EXPECT_EQ(Get("/v2/models/f/stats").at("model_stats").at(0).at("inference_count").as_int64(), 7);
  const auto batches = Get("/v2/models/f/stats").at("model_stats").at(0).at("batch_stats");
  ASSERT_EQ(batches.as_array().size(), 1U);
  EXPECT_EQ(batches.at(0).at("batch_size").as_int64(), 4);
  EXPECT_EQ(batches.at(0).at("compute_input").at("ns").as_int64(), 3000);
  EXPECT_EQ(batches.at(0).at("compute_infer").at("count").as_int64(), 1);
  EXPECT_EQ(batches.at(0).at("compute_infer").at("ns").as_int64(), 40'000);
  EXPECT_EQ(batches.at(0).at("compute_output").at("ns").as_int64(), 5000);
  EXPECT_EQ(Get("/v2/models/stats").at("model_stats").as_array().size(), 2U);
  const ClientResponse head = client_->Ask("HEAD", "/v2/models/f");
  EXPECT_EQ(head.code, 200);
  EXPECT_NE(head.headers.at("content-length"), "0");
  EXPECT_EQ(client_->Ask("DELETE", "/v2/models/f").headers.at("allow"), "GET, HEAD");
}

TEST_F(ManagementHttp, Repository) {
  EXPECT_EQ(client_->Ask("POST", "/v2/repository/models/f/unload").code, 200);
  Get("/v2/models/f/ready", 503);
  const ClientResponse all = client_->Ask("POST", "/v2/repository/index");
  EXPECT_NE(all.body.find(R"({"name":"f","version":"1","state":"UNAVAILABLE","reason":"unloaded"})"),
            std::string::npos);
  EXPECT_EQ(client_->Ask("POST", "/v2/repository/index", R"({"ready":true})").body.find("\"f\""),
            std::string::npos);
  EXPECT_EQ(
      client_->Ask("POST", "/v2/repository/models/f/load", R"({"parameters":{"unload_dependents":true}})")
          .code,
      200);
  EXPECT_EQ(service_.load_parameters().at("unload_dependents"), "true");
  for (const std::string_view ignored : {"config", "file:1/model.onnx"}) {
    const auto refused = client_->Ask("POST", "/v2/repository/models/f/load",
                                      Cat(R"({"parameters":{")", ignored, R"(":"x"}})"));
    EXPECT_EQ(refused.code, 501) << ignored;
    EXPECT_NE(refused.body.find(ignored), std::string::npos) << refused.body;
  }
  EXPECT_EQ(client_->Ask("POST", "/v2/repository/models/f/load", R"({"parameters":{"a":1}})").code, 400);
  Get("/v2/models/f/ready");
  EXPECT_EQ(client_->Ask("POST", "/v2/repository/models/absent/load").code, 404);
  EXPECT_EQ(client_->Ask("POST", "/v2/repository/models/f/load", "[]").code, 400);
  EXPECT_EQ(client_->Ask("POST", "/v2/repository/index", "{").code, 400);
}

TEST_F(ManagementHttp, Metrics) {
  client_->Ask("POST", "/v2/models/f/infer", kBody);
  client_->Ask("POST", "/v2/models/f/infer", "{");
  client_->Ask("POST", "/v2/models/absent/infer", kBody);
  ClientResponse metrics = client_->Ask("GET", "/metrics");
  EXPECT_TRUE(metrics.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  for (const std::string_view line :
       {"troupe_requests_total{code=\"200\",function=\"f\"} 1\n",
        "troupe_requests_total{code=\"400\",function=\"f\"} 1\n",
        "troupe_request_errors_total{function=\"f\"} 1\n", "troupe_request_seconds_count{function=\"f\"} 2\n",
        "troupe_http_requests_total 4\n", "troupe_http_connections 1\n"}) {
    EXPECT_NE(metrics.body.find(line), std::string::npos) << line << metrics.body;
  }
  EXPECT_EQ(metrics.body.find("absent"), std::string::npos);
  service_.Remove("f");
  metrics = client_->Ask("GET", "/metrics");
  EXPECT_EQ(metrics.body.find("function=\"f\""), std::string::npos);
}

TEST_F(ManagementHttp, WhatTheClusterRemarksIsTheMessageOfTheAnswer) {
  for (const std::string_view path : {"/v2/troupe/functions/f", "/v2/troupe/workflows"}) {
    admin_.RemarkWith("");
    EXPECT_EQ(client_->Ask("POST", path, "bytes").body.find("message"), std::string::npos) << path;
    admin_.RemarkWith("workflow \"w\" does not fit");
    const auto answer = client_->Ask("POST", path, "bytes");
    ASSERT_EQ(answer.code, 200) << answer.body;
    EXPECT_EQ(boost::json::parse(answer.body).at("message").as_string(), "workflow \"w\" does not fit");
  }
}

TEST_F(ManagementHttp, Functions) {
  const ClientResponse deployed = client_->Ask(
      "POST",
      "/v2/troupe/functions/digits?version=2&tenant=a%20b&isolation=tenant&deadline_ms=12.5&percentile=99"
      "&precision=bf16&sm_partition=24&quota_request=30&quota_limit=80%25&gpu_mem=2GiB&max_instances=4&max_batch=8&run_limit_ms=2500&state=past%3Dpresent,a%3Db"
      "&state_replicas=2&stage_memory=8GiB",
      "ONNX bytes");
  EXPECT_EQ(deployed.code, 200) << deployed.body;
  EXPECT_EQ(boost::json::parse(deployed.body).at("record").at("key").at("name").as_string(), "digits");
  const Deployment last = admin_.last_deployment();
  EXPECT_EQ(last.version, "2");
  EXPECT_EQ(last.tenant, "a b");
  EXPECT_EQ(last.isolation, "tenant");
  EXPECT_EQ(last.precision, proto::PRECISION_BF16);
  EXPECT_EQ(last.sharing.sm_partition(), 24U);
  EXPECT_EQ(last.sharing.quota_request(), 30U);
  EXPECT_EQ(last.sharing.quota_limit(), 80U);
  EXPECT_EQ(last.sharing.gpu_mem(), GiB(2).count());
  EXPECT_EQ(last.sharing.max_instances(), 4U);
  EXPECT_EQ(last.sharing.max_batch(), 8U);
  EXPECT_EQ(last.run_limit, std::chrono::milliseconds(2500));
  EXPECT_EQ(last.deadline, std::chrono::microseconds(12500));
  EXPECT_EQ(last.percentile, 99);
  EXPECT_EQ(last.onnx, "ONNX bytes");
  EXPECT_EQ(last.state_replicas, 2U);
  EXPECT_EQ(last.stage_memory, GiB(8));
  ASSERT_EQ(last.state.size(), 2U);
  EXPECT_EQ(last.state[0].input(), "past");
  EXPECT_EQ(last.state[1].output(), "b");
  EXPECT_EQ(Get("/v2/troupe/functions").as_array().size(), 2U);
  EXPECT_EQ(Get("/v2/troupe/functions/a").at(0).at("resident_on").at(0).as_string(), "node-1/0");
  EXPECT_EQ(client_->Ask("DELETE", "/v2/troupe/functions/a?version=3").code, 200);
  EXPECT_EQ(admin_.last_removed(), "a:3");
  for (const std::string_view query : {"?deadline_ms=0",
                                       "?deadline_ms=x",
                                       "?percentile=101",
                                       "?who=1",
                                       "?version=%",
                                       "?precision=fp8",
                                       "?sm_partition=0",
                                       "?sm_partition=101",
                                       "?sm_partition=-1",
                                       "?sm_partition=12.5",
                                       "?sm_partition=",
                                       "?quota_request=0",
                                       "?quota_limit=101",
                                       "?quota_request=60&quota_limit=50",
                                       "?gpu_mem=0",
                                       "?gpu_mem=2Gi",
                                       "?max_instances=65",
                                       "?max_batch=129",
                                       "?max_batch=all",
                                       "?sm_partition=50&max_instances=3",
                                       "?run_limit_ms=0",
                                       "?run_limit_ms=-1",
                                       "?run_limit_ms=3600001",
                                       "?run_limit_ms=5s",
                                       "?state_replicas=1",
                                       "?state=x%3Dy&state_replicas=4",
                                       "?stage_memory=0",
                                       "?stage_memory=8Gi",
                                       "?state=x",
                                       "?state=%3Dx",
                                       "?state=x%3D"}) {
    EXPECT_EQ(client_->Ask("POST", Cat("/v2/troupe/functions/a", query), "x").code, 400) << query;
  }
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/a").code, 400);
  EXPECT_EQ(client_->Ask("PUT", "/v2/troupe/functions/a").headers.at("allow"), "GET, HEAD, POST, DELETE");
  admin_.FailWith(MarkDiskFull(absl::UnavailableError("disk full")));
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/a", "x").code, 507);
  admin_.FailWith(absl::NotFoundError("no such function"));
  EXPECT_EQ(client_->Ask("DELETE", "/v2/troupe/functions/a").code, 404);
}

TEST_F(ManagementHttp, AFunctionIsUpdatedWhileItIsServed) {
  const ClientResponse updated = client_->Ask(
      "POST", "/v2/troupe/functions/digits/sharing?version=2&quota_limit=80&sm_partition=all&gpu_mem=1.5GB");
  EXPECT_EQ(updated.code, 200) << updated.body;
  EXPECT_EQ(boost::json::parse(updated.body).at(0).at("record").at("key").at("name").as_string(), "digits");
  const auto wish = admin_.last_update();
  EXPECT_EQ(wish.key().name(), "digits");
  EXPECT_EQ(wish.key().version(), "2");
  EXPECT_EQ(wish.sharing().quota_limit(), 80U);
  EXPECT_EQ(wish.sharing().sm_partition(), 0U);
  EXPECT_EQ(wish.sharing().gpu_mem(), 1'500'000'000U);
  EXPECT_THAT(wish.settings(), testing::UnorderedElementsAre("quota_limit", "sm_partition", "gpu_mem"));
  EXPECT_EQ(admin_.last_caller().address(), "127.0.0.1");
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/digits/sharing?sm_partition=auto&max_batch=auto").code,
            200);
  EXPECT_THAT(admin_.last_update().sharing().automatic(),
              testing::UnorderedElementsAre("sm_partition", "max_batch"));
  for (const std::string_view wrong :
       {"", "?version=2", "?quota_limit=auto", "?gpu_mem=some", "?quota_limit=0", "?quota_limit=101",
        "?sm_partition=none", "?max_batch=many", "?quota=30", "?precision=fp16"})
    EXPECT_EQ(client_->Ask("POST", Cat("/v2/troupe/functions/digits/sharing", wrong)).code, 400) << wrong;
  EXPECT_NE(client_->Ask("POST", "/v2/troupe/functions/digits/sharing?quota=30")
                .body.find("there are version, sm_partition"),
            std::string::npos);
  EXPECT_EQ(client_->Ask("GET", "/v2/troupe/functions/digits/sharing").headers.at("allow"), "POST");
  admin_.FailWith(absl::InvalidArgumentError("give 4 instances at most"));
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/digits/sharing?max_instances=5").code, 400);
}

TEST_F(ManagementHttp, VersionsShareRequestsAsAClientWants) {
  const ClientResponse canary =
      client_->Ask("POST", "/v2/troupe/functions/digits/canary?version=2&weight=10");
  EXPECT_EQ(canary.code, 200) << canary.body;
  EXPECT_EQ(boost::json::parse(canary.body).at(0).at("record").at("key").at("name").as_string(), "digits");
  EXPECT_EQ(admin_.last_split().canary().version(), "2");
  EXPECT_EQ(admin_.last_split().canary().percent(), 10U);
  EXPECT_EQ(admin_.last_caller().address(), "127.0.0.1");
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/digits/promote").code, 200);
  EXPECT_EQ(admin_.last_split().wish_case(), proto::SplitFunction::kPromote);
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/digits/promote?version=3").code, 200);
  EXPECT_EQ(admin_.last_split().promote(), "3");
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/digits/rollback").code, 200);
  EXPECT_TRUE(admin_.last_split().roll_back());
  for (const std::string_view wrong :
       {"canary", "canary?version=2", "canary?weight=10", "canary?version=2&weight=0",
        "canary?version=2&weight=101", "canary?version=2&weight=10&x=1", "promote?weight=10",
        "rollback?version=1"})
    EXPECT_EQ(client_->Ask("POST", Cat("/v2/troupe/functions/digits/", wrong)).code, 400) << wrong;
  EXPECT_EQ(client_->Ask("GET", "/v2/troupe/functions/digits/canary").headers.at("allow"), "POST");
  admin_.FailWith(absl::FailedPreconditionError("version 2 is a canary already"));
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/functions/digits/rollback").code, 400);
}

TEST_F(ManagementHttp, WorkflowsAndCluster) {
  EXPECT_NE(client_->Ask("POST", "/v2/troupe/workflows", "name: w").body.find("\"name\":\"name: w\""),
            std::string::npos);
  EXPECT_EQ(Get("/v2/troupe/workflows").as_array().size(), 0U);
  EXPECT_EQ(client_->Ask("DELETE", "/v2/troupe/workflows/w").code, 200);
  EXPECT_EQ(admin_.last_removed(), "w:workflow");
  EXPECT_EQ(Get("/v2/troupe/imports").at(0).at("onnx_digest").as_string(), "any");
  EXPECT_EQ(Get("/v2/troupe/imports/ab12").at(0).at("onnx_digest").as_string(), "ab12");
  EXPECT_EQ(Get("/v2/troupe/imports/ab12").at(0).at("ahead").as_int64(), 3);
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/imports").headers.at("allow"), "GET, HEAD");
  EXPECT_EQ(Get("/v2/troupe/runs").at(0).at("state").as_string(), "RUN_SUCCEEDED");
  EXPECT_EQ(Get("/v2/troupe/runs?workflow=w").at(0).at("start").at("workflow").as_string(), "w");
  EXPECT_EQ(Get("/v2/troupe/runs/run-7").at("start").at("run").as_string(), "run-7");
  EXPECT_EQ(client_->Ask("DELETE", "/v2/troupe/runs/run-7").code, 200);
  EXPECT_EQ(admin_.last_removed(), "run-7:run");
  EXPECT_EQ(client_->Ask("POST", "/v2/troupe/runs/run-7").headers.at("allow"), "GET, HEAD, DELETE");
  EXPECT_EQ(Get("/v2/troupe/cluster").at("cluster").as_string(), "test");
}

TEST_F(ManagementHttp, WithoutAManagerTheManagementPathsAreNotImplemented) {
  const auto server =
      GatewayServer::Start(GatewayOptions(), service_, nullptr, std::make_shared<prometheus::Registry>());
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(SocketClient((*server)->port()).Ask("GET", "/v2/troupe/cluster").code, 501);
  GatewayOptions impossible;
  impossible.max_model = GiB(64);
  EXPECT_FALSE(GatewayServer::Start(impossible, service_, nullptr, registry_).ok());
}

}  // namespace
}  // namespace troupe::gateway
