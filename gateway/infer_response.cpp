#include "gateway/infer_response.hpp"

#include <algorithm>

#include "base/status.hpp"
#include "gateway/http_error.hpp"
#include "gateway/json_text.hpp"
#include "gateway/tensor_json.hpp"
#include "gateway/tensor_type.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

bool WantsBinary(const ParsedInfer& parsed, std::string_view output) {
  const auto wish = std::find_if(parsed.outputs.begin(), parsed.outputs.end(),
                                 [&](const OutputWish& one) { return one.name == output; });
  return wish == parsed.outputs.end() ? parsed.binary_default : wish->binary;
}

absl::Status AppendOutput(HttpResponse& response, bool binary, InferOutput& output) {
  std::string& out = response.body;
  out += "{\"name\":";
  AppendJsonText(out, output.spec.name());
  Append(out, ",\"datatype\":\"", TypeName(output.spec.type()), "\",\"shape\":", ShapeText(output.spec));
  if (!binary) {
    out += ",\"data\":";
    TROUPE_RETURN_IF_ERROR(AppendJsonTensor(out, output.spec, output.data.bytes()));
    out += '}';
    return absl::OkStatus();
  }
  if (absl::Status status = CheckRawTensor(output.spec, output.data.bytes()); !status.ok()) {
    return absl::InternalError(Cat("the function answered badly: ", Message(status)));
  }
  Append(out, ",\"parameters\":{\"binary_data_size\":", output.data.bytes().size(), "}}");
  response.parts.push_back(std::move(output.data));
  return absl::OkStatus();
}

}  // namespace

HttpResponse InferResponse(std::string_view function, const ParsedInfer& parsed, InferResult result) {
  if (!result.status.ok()) return ErrorResponse(result.status, result.retry_after);
  HttpResponse response;
  std::string& out = response.body;
  out += "{\"model_name\":";
  AppendJsonText(out, function);
  if (!result.version.empty()) {
    out += ",\"model_version\":";
    AppendJsonText(out, result.version);
  }
  if (!parsed.call.request_id.empty()) {
    out += ",\"id\":";
    AppendJsonText(out, parsed.call.request_id);
  }
  out += ",\"outputs\":[";
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    if (i > 0) out += ',';
    InferOutput& output = result.outputs[i];
    const bool binary = WantsBinary(parsed, output.spec.name());
    if (absl::Status status = AppendOutput(response, binary, output); !status.ok())
      return ErrorResponse(status);
  }
  out += "]}";
  if (!response.parts.empty()) {
    response.content_type = "application/octet-stream";
    Append(response.headers, "Inference-Header-Content-Length: ", out.size(), "\r\n");
  }
  return response;
}

}  // namespace troupe::gateway
