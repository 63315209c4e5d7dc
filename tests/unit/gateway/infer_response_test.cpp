#include "gateway/infer_response.hpp"

#include <gtest/gtest.h>

#include "gateway/model_json.hpp"
#include "gateway/text.hpp"
#include "tests/unit/gateway/fake_inference_service.hpp"

namespace troupe::gateway {
namespace {

InferResult Result() {
  InferResult result;
  result.version = "3";
  result.outputs.push_back({Spec("y", proto::UINT8, {1, 2}), OutputBuffer::Inline("\7\11")});
  result.outputs.push_back({Spec("h", proto::FP16, {2}), OutputBuffer::Inline("abcd")});
  return result;
}

TEST(InferResponse, JsonAndBinaryOutputsTogether) {
  ParsedInfer parsed;
  parsed.call.request_id = "i\"d";
  parsed.outputs = {{"y", false}, {"h", true}};
  const HttpResponse response = InferResponse("f", parsed, Result());
  EXPECT_EQ(response.code, 200);
  EXPECT_EQ(response.body,
            R"({"model_name":"f","model_version":"3","id":"i\"d","outputs":[)"
            R"({"name":"y","datatype":"UINT8","shape":[1,2],"data":[7,9]},)"
            R"({"name":"h","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}}]})");
  EXPECT_EQ(response.content_type, "application/octet-stream");
  EXPECT_EQ(response.headers,
            "Inference-Header-Content-Length: " + std::to_string(response.body.size()) + "\r\n");
  ASSERT_EQ(response.parts.size(), 1U);
  EXPECT_EQ(response.parts[0].bytes().size(), 4U);
}

TEST(InferResponse, AllJsonHasNoBinaryHeader) {
  InferResult result = Result();
  result.outputs.pop_back();
  const HttpResponse response = InferResponse("f", ParsedInfer(), std::move(result));
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(response.headers, "");
}

TEST(InferResponse, AFunctionThatAnswersBadlyIsAnError) {
  for (const bool binary : {false, true}) {
    ParsedInfer parsed;
    parsed.binary_default = binary;
    InferResult result;
    result.outputs.push_back({Spec("y", proto::FP32, {2}), OutputBuffer::Inline("abc")});
    const HttpResponse response = InferResponse("f", parsed, std::move(result));
    EXPECT_EQ(response.code, 500);
    EXPECT_TRUE(response.parts.empty());
  }
}

TEST(InferResponse, AFailureIsItsStatus) {
  InferResult result;
  result.status = absl::UnavailableError("no node");
  result.retry_after = std::chrono::seconds(3);
  const HttpResponse response = InferResponse("f", ParsedInfer(), std::move(result));
  EXPECT_EQ(response.code, 503);
  EXPECT_EQ(response.headers, "Retry-After: 3\r\n");
}

TEST(ModelJson, MetadataConfigAndIndex) {
  FakeInferenceService service;
  service.AddEcho("f", {Spec("x", proto::BYTES, {-1, 2})}, {"y"});
  const auto function = *service.Find("f", "");
  EXPECT_EQ(ModelMetadataJson(*function), R"({"name":"f","versions":["1"],"platform":"onnx_onnxv1",)"
                                          R"("inputs":[{"name":"x","datatype":"BYTES","shape":[-1,2]}],)"
                                          R"("outputs":[{"name":"y","datatype":"BYTES","shape":[-1,2]}]})");
  EXPECT_NE(
      ModelConfigJson(*function).find(R"("input":[{"name":"x","data_type":"TYPE_STRING","dims":[-1,2]}])"),
      std::string::npos);
  service.SetReady("f", false);
  EXPECT_EQ(RepositoryIndexJson(service.List(), false),
            R"([{"name":"f","version":"1","state":"UNAVAILABLE","reason":"unloaded"}])");
  EXPECT_EQ(RepositoryIndexJson(service.List(), true), "[]");
  EXPECT_TRUE(*ParseIndexRequest(R"({"ready":true})"));
  EXPECT_FALSE(*ParseIndexRequest(" "));
  EXPECT_FALSE(ParseIndexRequest("{").ok());
  EXPECT_FALSE(ParseIndexRequest(R"({"ready":1})").ok());
  const auto parameters = ParseLoadRequest(R"({"parameters":{"unload_dependents":true}})");
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  EXPECT_EQ(*parameters, (std::map<std::string, std::string>{{"unload_dependents", "true"}}));
  EXPECT_FALSE(ParseLoadRequest(R"({"parameters":{"unload_dependents":[]}})").ok());
  EXPECT_EQ(ParseLoadRequest(R"({"parameters":{"a":1}})").status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const std::string_view key : {"config", "file:1/model.onnx"})
    EXPECT_EQ(ParseLoadRequest(Cat(R"({"parameters":{")", key, R"(":"x"}})")).status().code(),
              absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace troupe::gateway
