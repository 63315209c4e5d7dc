#include "gateway/infer_response.hpp"

#include <algorithm>

#include "base/status.hpp"
#include "gateway/http_error.hpp"
#include "gateway/infer_members.hpp"
#include "gateway/json_text.hpp"
#include "gateway/tensor_json.hpp"
#include "gateway/tensor_type.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

OutputWish WishFor(const ParsedInfer& parsed, const std::string& output) {
  const auto wish = std::find_if(parsed.outputs.begin(), parsed.outputs.end(),
                                 [&](const OutputWish& one) { return one.name == output; });
  return wish == parsed.outputs.end() ? OutputWish{output, parsed.binary_default, {}} : *wish;
}

// Once, from where the bytes lie.
absl::Status WriteShared(const SharedRange& range, const InferOutput& output, SharedMemory* memory) {
  const auto bytes = output.data.bytes();
  if (bytes.size() > range.size().count()) {
    return absl::InvalidArgumentError(Cat(
        "output '", output.spec.name(), "' has ", bytes.size(), " bytes, and the request has room for ",
        range.size().count(), " in the shared memory region '", range.name(), "' (\"", kSharedSize, "\")"));
  }
  if (const absl::Status status = range.Write(bytes); !status.ok())
    return absl::Status(status.code(), Cat("output '", output.spec.name(), "': ", Message(status)));
  if (memory != nullptr) memory->CountOut(bytes.size());
  return absl::OkStatus();
}

void AppendShared(std::string& out, const SharedRange& range, std::size_t size) {
  Append(out, ",\"parameters\":{\"", kSharedRegion, "\":");
  AppendJsonText(out, range.name());
  if (range.offset() > 0) Append(out, ",\"", kSharedOffset, "\":", range.offset());
  Append(out, ",\"", kSharedSize, "\":", size, "}}");
}

absl::Status AppendOutput(HttpResponse& response, const OutputWish& wish, InferOutput& output,
                          SharedMemory* memory) {
  std::string& out = response.body;
  out += "{\"name\":";
  AppendJsonText(out, output.spec.name());
  Append(out, ",\"datatype\":\"", TypeName(output.spec.type()), "\",\"shape\":", ShapeText(output.spec));
  if (!wish.binary && !wish.shared.valid()) {
    out += ",\"data\":";
    TROUPE_RETURN_IF_ERROR(AppendJsonTensor(out, output.spec, output.data.bytes()));
    out += '}';
    return absl::OkStatus();
  }
  if (absl::Status status = CheckRawTensor(output.spec, output.data.bytes()); !status.ok()) {
    return absl::InternalError(Cat("the function answered badly: ", Message(status)));
  }
  if (wish.shared.valid()) {
    TROUPE_RETURN_IF_ERROR(WriteShared(wish.shared, output, memory));
    AppendShared(out, wish.shared, output.data.bytes().size());
    output.data = OutputBuffer();
    return absl::OkStatus();
  }
  Append(out, ",\"parameters\":{\"binary_data_size\":", output.data.bytes().size(), "}}");
  response.parts.push_back(std::move(output.data));
  return absl::OkStatus();
}

}  // namespace

HttpResponse InferResponse(std::string_view function, const ParsedInfer& parsed, InferResult result,
                           SharedMemory* memory) {
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
    const OutputWish wish = WishFor(parsed, output.spec.name());
    if (absl::Status status = AppendOutput(response, wish, output, memory); !status.ok())
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
