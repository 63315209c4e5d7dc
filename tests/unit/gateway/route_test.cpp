#include "gateway/route.hpp"

#include <gtest/gtest.h>

#include "base/status.hpp"
#include "gateway/http_error.hpp"

namespace troupe::gateway {
namespace {

TEST(Route, KnowsEveryPath) {
  struct Row {
    std::string_view target;
    Endpoint endpoint;
    std::string_view name;
    std::string_view version;
  };
  const Row rows[] = {
      {"/v2", Endpoint::kServerMetadata, "", ""},
      {"/v2/", Endpoint::kServerMetadata, "", ""},
      {"/v2/health/live", Endpoint::kLive, "", ""},
      {"/v2/health/ready", Endpoint::kReady, "", ""},
      {"/v2/models/digits", Endpoint::kModelMetadata, "digits", ""},
      {"/v2/models/digits/versions/3", Endpoint::kModelMetadata, "digits", "3"},
      {"/v2/models/digits/ready", Endpoint::kModelReady, "digits", ""},
      {"/v2/models/digits/versions/3/ready", Endpoint::kModelReady, "digits", "3"},
      {"/v2/models/digits/config", Endpoint::kModelConfig, "digits", ""},
      {"/v2/models/digits/stats", Endpoint::kModelStatistics, "digits", ""},
      {"/v2/models/digits/versions/3/stats", Endpoint::kModelStatistics, "digits", "3"},
      {"/v2/models/stats", Endpoint::kAllStatistics, "", ""},
      {"/v2/models/digits/infer", Endpoint::kInfer, "digits", ""},
      {"/v2/models/di%67its/versions/%33/infer", Endpoint::kInfer, "digits", "3"},
      {"http://host:8000/v2/models/a/infer?x=1", Endpoint::kInfer, "a", ""},
      {"/v2/repository/index", Endpoint::kRepositoryIndex, "", ""},
      {"/v2/repository/models/a/load", Endpoint::kRepositoryLoad, "a", ""},
      {"/v2/repository/models/a/unload", Endpoint::kRepositoryUnload, "a", ""},
      {"/v2/systemsharedmemory/status", Endpoint::kSharedStatus, "", ""},
      {"/v2/systemsharedmemory/unregister", Endpoint::kSharedUnregister, "", ""},
      {"/v2/systemsharedmemory/region/a%2Fb/status", Endpoint::kSharedStatus, "a/b", ""},
      {"/v2/systemsharedmemory/region/a/register", Endpoint::kSharedRegister, "a", ""},
      {"/v2/systemsharedmemory/region/a/unregister", Endpoint::kSharedUnregister, "a", ""},
      {"/v2/troupe/functions", Endpoint::kFunctions, "", ""},
      {"/v2/troupe/functions/a", Endpoint::kFunction, "a", ""},
      {"/v2/troupe/functions/a/canary?version=2&weight=10", Endpoint::kCanary, "a", ""},
      {"/v2/troupe/functions/a/promote", Endpoint::kPromote, "a", ""},
      {"/v2/troupe/functions/a/rollback", Endpoint::kRollBack, "a", ""},
      {"/v2/troupe/functions/a/sharing", Endpoint::kSharing, "a", ""},
      {"/v2/troupe/workflows", Endpoint::kWorkflows, "", ""},
      {"/v2/troupe/runs?workflow=w", Endpoint::kRuns, "", ""},
      {"/v2/troupe/runs/gateway-1.7", Endpoint::kRun, "gateway-1.7", ""},
      {"/v2/troupe/workflows/a", Endpoint::kWorkflow, "a", ""},
      {"/v2/troupe/imports", Endpoint::kImports, "", ""},
      {"/v2/troupe/imports/ab12", Endpoint::kImport, "ab12", ""},
      {"/v2/troupe/cluster", Endpoint::kCluster, "", ""},
      {"/metrics", Endpoint::kMetrics, "", ""},
      {"/healthz", Endpoint::kHealthz, "", ""},
      {"/console", Endpoint::kConsole, "", ""},
      {"/console/", Endpoint::kConsole, "", ""},
      {"/console/console.js", Endpoint::kConsole, "console.js", ""},
  };
  for (const Row& row : rows) {
    const auto route = ParseRoute(row.target);
    ASSERT_TRUE(route.ok()) << row.target;
    EXPECT_EQ(route->endpoint, row.endpoint) << row.target;
    EXPECT_EQ(route->name, row.name) << row.target;
    EXPECT_EQ(route->version, row.version) << row.target;
  }
}

TEST(Route, RefusesTheRest) {
  for (const std::string_view target :
       {"", "*", "v2", "/", "/v3", "/v2/models", "/v2/models/", "/v2/models//infer", "//v2", "/v2//",
        "/v2/models/a/versions//infer", "/v2/models/a/infer/x/y/z/u/v/w", "/v2/health", "http://host"}) {
    const absl::Status status = ParseRoute(target).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << target;
    EXPECT_NE(status.message().find("/v2/repository/index lists the functions"), absl::string_view::npos)
        << status;
  }
  for (const std::string_view target :
       {"/v2/models/a%", "/v2/models/a%2", "/v2/models/a%zz", "/v2/models/a%00b"}) {
    EXPECT_EQ(ParseRoute(target).status().code(), absl::StatusCode::kInvalidArgument) << target;
  }
}

TEST(Route, MethodsAndQueries) {
  EXPECT_TRUE(MethodAllowed(Endpoint::kInfer, "POST"));
  EXPECT_FALSE(MethodAllowed(Endpoint::kInfer, "GET"));
  EXPECT_TRUE(MethodAllowed(Endpoint::kMetrics, "HEAD"));
  EXPECT_TRUE(MethodAllowed(Endpoint::kFunction, "DELETE"));
  EXPECT_FALSE(MethodAllowed(Endpoint::kFunction, "DEL"));
  EXPECT_FALSE(MethodAllowed(Endpoint::kFunction, ""));
  const auto query = ParseQuery("a=1&b=x%20y+z&&c");
  ASSERT_TRUE(query.ok());
  EXPECT_EQ(*query, (std::map<std::string, std::string>{{"a", "1"}, {"b", "x y z"}, {"c", ""}}));
  EXPECT_FALSE(ParseQuery("a=1&a=2").ok());
  EXPECT_FALSE(ParseQuery("a=%").ok());
}

TEST(HttpError, MapsStatusToCodes) {
  EXPECT_EQ(HttpCode(absl::InvalidArgumentError("")), 400);
  EXPECT_EQ(HttpCode(absl::NotFoundError("")), 404);
  EXPECT_EQ(HttpCode(absl::UnimplementedError("")), 501);
  EXPECT_EQ(HttpCode(absl::InternalError("")), 500);
  EXPECT_EQ(HttpCode(MarkDiskFull(absl::UnavailableError(""))), 507);
  const HttpResponse busy =
      ErrorResponse(absl::ResourceExhaustedError("full \"q\""), std::chrono::milliseconds(1500));
  EXPECT_EQ(busy.code, 503);
  EXPECT_EQ(busy.headers, "Retry-After: 2\r\n");
  EXPECT_EQ(busy.body, R"({"error":"full \"q\""})");
  const HttpResponse late = ErrorResponse(absl::DeadlineExceededError("late"));
  EXPECT_EQ(late.code, 503);
  EXPECT_EQ(late.headers, "");
}

}  // namespace
}  // namespace troupe::gateway
