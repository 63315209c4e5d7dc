// The body of an inference request: JSON, and behind it raw tensors (first two bytes: how many).
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "gateway/infer_request.hpp"
#include "gateway/infer_response.hpp"
#include "gateway/json_cursor.hpp"
#include "gateway/tensor_json.hpp"

namespace {

using namespace troupe;
using namespace troupe::gateway;

// A service that gives memory for tensors and answers nothing, since only the parser is tested.
class Places final : public InferenceService {
 public:
  absl::StatusOr<InputBuffer> ReserveInput(Bytes size) override {
    return InputBuffer::Inline(std::string(size.count(), '\0'));
  }
  CallId Infer(InferCall, std::function<void(InferResult)>) override { return CallId(0); }
  void Cancel(CallId) override {}
  absl::StatusOr<std::shared_ptr<const FunctionInfo>> Find(std::string_view, std::string_view) override {
    return absl::NotFoundError("the fuzz target has no functions");
  }
  std::vector<std::shared_ptr<const FunctionInfo>> List() override { return {}; }
  absl::StatusOr<FunctionStatistics> Statistics(std::string_view, std::string_view) override {
    return absl::NotFoundError("the fuzz target has no functions");
  }
  bool Live() override { return true; }
  bool Ready() override { return true; }
  void Load(const proto::Caller&, std::string_view, std::map<std::string, std::string>,
            std::function<void(absl::Status)>) override {}
  void Unload(const proto::Caller&, std::string_view, std::function<void(absl::Status)>) override {}
};

FunctionInfo Everything() {
  FunctionInfo info;
  info.name = "f";
  info.version = "1";
  for (int type = proto::BOOL; type <= proto::DataType_MAX; ++type) {
    if (!proto::DataType_IsValid(type)) continue;
    proto::TensorSpec spec;
    spec.set_name(std::string(1, static_cast<char>('a' + type)));
    spec.set_type(static_cast<proto::DataType>(type));
    spec.add_shape(-1);
    if (type % 2 == 0) spec.add_shape(-1);
    info.outputs.push_back(spec);
    // Only the first few tensors are inputs of the function, which have to be given.
    if (type <= 2 || type == proto::FP32 || type == proto::BYTES) info.inputs.push_back(std::move(spec));
  }
  return info;
}

// A tensor that was read is written and read again, and is the same.
void CheckRoundTrip(const proto::TensorSpec& spec, std::span<const std::byte> bytes) {
  std::string text;
  if (!AppendJsonTensor(text, spec, bytes).ok()) return;
  JsonCursor cursor(text, true);
  const auto size = MeasureJsonTensor(cursor, spec);
  TROUPE_CHECK(size.ok() && size->count() == bytes.size(), "a tensor that was written has its size");
  std::vector<std::byte> again(size->count());
  TROUPE_CHECK(ReadJsonTensor(cursor, spec, again).ok(), "a tensor that was written can be read");
  const bool floats =
      spec.type() == proto::FP32 || spec.type() == proto::FP64;  // types whose NaNs may differ
  TROUPE_CHECK(floats || again.empty() || std::memcmp(again.data(), bytes.data(), again.size()) == 0,
               "a tensor that was written is the same when it is read");
}

void Answer(const ParsedInfer& parsed, const FunctionInfo& function) {
  InferResult result;
  result.version = function.version;
  for (const proto::TensorSpec& output : function.outputs) {
    if (output.type() != proto::FP32) continue;
    InferOutput one;
    one.spec = output;
    for (auto& dimension : *one.spec.mutable_shape()) dimension = 1;
    one.data = OutputBuffer::Inline(std::string(4, '\0'));
    result.outputs.push_back(std::move(one));
  }
  if (parsed.outputs.size() == result.outputs.size())
    (void)InferResponse(function.name, parsed, std::move(result));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Places& places = *new Places();
  static const FunctionInfo& function = *new FunctionInfo(Everything());
  if (size < 2) return 0;
  const std::size_t behind = data[0] + std::size_t{256} * data[1];
  const std::string_view body(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::size_t raw = std::min(behind, body.size());
  const std::string_view json = body.substr(0, body.size() - raw);
  JsonCursor whole(json);
  (void)(whole.Skip() && whole.Finish());
  auto parsed = ParseInferRequest(json, function, places, raw);
  if (!parsed.ok()) return 0;
  std::string_view bytes = body.substr(json.size());
  for (const RawInput& input : parsed->raw_inputs) {
    TROUPE_CHECK(input.span.size() <= bytes.size(), "raw inputs have no more bytes than came");
    std::memcpy(input.span.data(), bytes.data(), input.span.size());
    bytes.remove_prefix(input.span.size());
  }
  if (!CheckRawInputs(*parsed).ok()) return 0;
  for (InferInput& input : parsed->call.inputs) CheckRoundTrip(input.spec, input.data.bytes());
  Answer(*parsed, function);
  return 0;
}
