#include "gateway/model_json.hpp"

#include <boost/json.hpp>

#include "base/status.hpp"
#include "gateway/tensor_type.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace json = boost::json;

namespace {

json::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

json::array Shape(const proto::TensorSpec& spec) {
  json::array out;
  for (const std::int64_t dimension : spec.shape()) out.emplace_back(dimension);
  return out;
}

json::array MetadataTensors(const std::vector<proto::TensorSpec>& specs) {
  json::array out;
  for (const proto::TensorSpec& spec : specs) {
    out.emplace_back(json::object{
        {"name", spec.name()}, {"datatype", View(TypeName(spec.type()))}, {"shape", Shape(spec)}});
  }
  return out;
}

json::array ConfigTensors(const std::vector<proto::TensorSpec>& specs) {
  json::array out;
  for (const proto::TensorSpec& spec : specs) {
    const std::string type = Cat("TYPE_", spec.type() == proto::BYTES ? "STRING" : TypeName(spec.type()));
    out.emplace_back(json::object{{"name", spec.name()}, {"data_type", type}, {"dims", Shape(spec)}});
  }
  return out;
}

json::object Counted(const CountedTime& time) {
  return {{"count", time.count}, {"ns", time.total.count()}};
}

json::array Batches(const FunctionStatistics& statistics) {
  json::array out;
  for (const auto& [size, batch] : statistics.batches) {
    out.emplace_back(json::object{{"batch_size", size},
                                  {"compute_input", Counted(batch.compute_input)},
                                  {"compute_infer", Counted(batch.compute_infer)},
                                  {"compute_output", Counted(batch.compute_output)}});
  }
  return out;
}

json::object Statistics(const FunctionInfo& function, const FunctionStatistics& statistics) {
  return {{"name", function.name},
          {"version", function.version},
          {"last_inference", statistics.last_inference_unix_ms},
          {"inference_count", statistics.inference_count},
          {"execution_count", statistics.execution_count},
          {"inference_stats", json::object{{"success", Counted(statistics.success)},
                                           {"fail", Counted(statistics.fail)},
                                           {"queue", Counted(statistics.queue)},
                                           {"compute_input", Counted(statistics.compute_input)},
                                           {"compute_infer", Counted(statistics.compute_infer)},
                                           {"compute_output", Counted(statistics.compute_output)},
                                           {"cache_hit", Counted({})},
                                           {"cache_miss", Counted({})}}},
          {"batch_stats", Batches(statistics)}};
}

// An empty body stands for an empty object.
absl::StatusOr<json::object> ParseObject(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return json::object();
  boost::system::error_code error;
  json::value value = json::parse(View(body), error);
  if (error) return absl::InvalidArgumentError(Cat("JSON: ", error.message()));
  if (!value.is_object()) return absl::InvalidArgumentError("the body must be a JSON object");
  return std::move(value.get_object());
}

}  // namespace

std::string ServerMetadataJson(std::string_view version, bool shared_memory) {
  json::array extensions = {"binary_tensor_data", "model_configuration",
                            "model_repository",   "model_repository(unload_dependents)",
                            "schedule_policy",    "statistics"};
  if (shared_memory) extensions.emplace_back("system_shared_memory");
  extensions.emplace_back("troupe");
  return json::serialize(
      json::object{{"name", "troupe"}, {"version", View(version)}, {"extensions", std::move(extensions)}});
}

std::string HealthJson(bool live, bool ready) {
  return json::serialize(json::object{{"live", live}, {"ready", ready}});
}

std::string ModelMetadataJson(const FunctionInfo& function) {
  json::array versions;
  for (const std::string& version : function.versions) versions.emplace_back(version);
  return json::serialize(json::object{{"name", function.name},
                                      {"versions", std::move(versions)},
                                      {"platform", function.platform},
                                      {"inputs", MetadataTensors(function.inputs)},
                                      {"outputs", MetadataTensors(function.outputs)}});
}

std::string ModelReadyJson(const FunctionInfo& function) {
  json::object out{{"name", function.name}, {"ready", function.ready}};
  if (!function.ready) out["error"] = Cat("function '", function.name, "' is not ready: ", function.reason);
  return json::serialize(out);
}

std::string ModelConfigJson(const FunctionInfo& function) {
  return json::serialize(json::object{
      {"name", function.name},
      {"platform", function.platform},
      {"backend", "troupe"},
      {"max_batch_size", 0},
      {"input", ConfigTensors(function.inputs)},
      {"output", ConfigTensors(function.outputs)},
      {"parameters",
       json::object{
           {"tenant", json::object{{"string_value", function.tenant}}},
           {"deadline_ms", json::object{{"string_value", std::to_string(ToMillis(function.deadline))}}},
           {"percentile", json::object{{"string_value", std::to_string(function.percentile)}}}}}});
}

std::string StatisticsJson(const std::vector<std::pair<FunctionPtr, FunctionStatistics>>& all) {
  json::array out;
  for (const auto& [function, statistics] : all) out.emplace_back(Statistics(*function, statistics));
  return json::serialize(json::object{{"model_stats", std::move(out)}});
}

std::string RepositoryIndexJson(const std::vector<FunctionPtr>& functions, bool ready_only) {
  json::array out;
  for (const FunctionPtr& function : functions) {
    if (ready_only && !function->ready) continue;
    out.emplace_back(json::object{{"name", function->name},
                                  {"version", function->version},
                                  {"state", function->ready ? "READY" : "UNAVAILABLE"},
                                  {"reason", function->reason}});
  }
  return json::serialize(out);
}

absl::StatusOr<bool> ParseIndexRequest(std::string_view body) {
  absl::StatusOr<json::object> object = ParseObject(body);
  if (!object.ok()) return object.status();
  const json::value* ready = object->if_contains("ready");
  if (ready == nullptr) return false;
  if (!ready->is_bool()) return absl::InvalidArgumentError("\"ready\" must be true or false");
  return ready->get_bool();
}

namespace {

// A parameter that would have no effect is refused by its name.
absl::Status CheckLoadParameter(std::string_view key) {
  if (key == "unload_dependents") return absl::OkStatus();
  if (key == "config" || key.starts_with("file:")) {
    return absl::UnimplementedError(Cat("parameter '", key.substr(0, 100),
                                        "' is not offered: a function is loaded as it was deployed; ",
                                        "deploy another version with POST /v2/troupe/functions/NAME"));
  }
  return absl::InvalidArgumentError(
      Cat("unknown parameter '", key.substr(0, 100), "'; there is unload_dependents"));
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseLoadRequest(std::string_view body) {
  absl::StatusOr<json::object> object = ParseObject(body);
  if (!object.ok()) return object.status();
  std::map<std::string, std::string> out;
  const json::value* parameters = object->if_contains("parameters");
  if (parameters == nullptr) return out;
  if (!parameters->is_object()) return absl::InvalidArgumentError("\"parameters\" must be a JSON object");
  for (const auto& [key, value] : parameters->get_object()) {
    TROUPE_RETURN_IF_ERROR(CheckLoadParameter({key.data(), key.size()}));
    if (value.is_structured() || value.is_null()) {
      return absl::InvalidArgumentError(
          Cat("parameter '", std::string(key), "' must be a string, a number or a boolean"));
    }
    out[std::string(key)] = value.is_string() ? std::string(value.get_string()) : json::serialize(value);
  }
  return out;
}

}  // namespace troupe::gateway
