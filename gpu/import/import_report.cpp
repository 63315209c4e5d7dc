#include "gpu/import/import_report.hpp"

#include <boost/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "proto/stage_wish.hpp"

namespace troupe::gpu {
namespace {

namespace json = boost::json;

json::array SpecsToJson(const std::vector<proto::TensorSpec>& specs) {
  json::array array;
  for (const proto::TensorSpec& spec : specs)
    array.push_back({{"name", spec.name()},
                     {"datatype", proto::DataType_Name(spec.type())},
                     {"shape", json::array(spec.shape().begin(), spec.shape().end())}});
  return array;
}

std::vector<proto::TensorSpec> SpecsOf(const json::value& value) {
  std::vector<proto::TensorSpec> specs;
  for (const json::value& entry : value.as_array()) {
    proto::TensorSpec& spec = specs.emplace_back();
    spec.set_name(std::string(entry.at("name").as_string()));
    proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
    if (!proto::DataType_Parse(std::string(entry.at("datatype").as_string()), &type))
      throw std::invalid_argument("datatype");
    spec.set_type(type);
    for (const json::value& size : entry.at("shape").as_array())
      spec.add_shape(size.to_number<std::int64_t>());
  }
  return specs;
}

absl::Status CheckLikelySizes(const ImportReport& report) {
  std::size_t open = 0;
  for (const proto::TensorSpec& input : report.inputs)
    for (int i = 1; i < input.shape_size(); ++i) open += input.shape(i) < 0 ? 1 : 0;
  const auto& sizes = report.likely_sizes;
  if (!sizes.empty() && sizes.size() != open)
    return absl::InternalError(absl::StrCat("the importer's report has ", sizes.size(), " likely sizes for ",
                                            open, " open dimensions"));
  const std::uint32_t most = report.stages > 1 ? kMostLikelySizeOfStage : kMostLikelySize;
  for (const auto* list : {&sizes, &report.likely_rows})
    for (const std::uint32_t size : *list)
      if (size == 0 || size > most)
        return absl::InternalError(
            absl::StrCat("the importer's report has the likely size ", size, ", which is not 1 to ", most));
  if (!report.likely_rows.empty() && report.likely_rows.size() != report.inputs.size())
    return absl::InternalError(absl::StrCat("the importer's report has ", report.likely_rows.size(),
                                            " first dimensions for ", report.inputs.size(), " inputs"));
  return absl::OkStatus();
}

}  // namespace

ImportExit ExitOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ImportExit::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ImportExit::kBadModel;
    case absl::StatusCode::kUnimplemented:
      return ImportExit::kUnsupported;
    case absl::StatusCode::kResourceExhausted:
      return IsDiskFull(status) ? ImportExit::kInternal : ImportExit::kLimits;
    case absl::StatusCode::kFailedPrecondition:
      return ImportExit::kNoJail;
    default:
      return ImportExit::kInternal;
  }
}

std::string NoJail(const std::string& missing) {
  return absl::StrCat(
      "models are not imported without a jail, and this machine's kernel or container does not allow ",
      missing, "; allow it, or start trouped with --import-sandbox best-effort to import all the same");
}

absl::Status StatusOf(ImportExit exit, const std::string& message) {
  switch (exit) {
    case ImportExit::kOk:
      return absl::OkStatus();
    case ImportExit::kBadModel:
      return absl::InvalidArgumentError(message);
    case ImportExit::kUnsupported:
      return absl::UnimplementedError(message);
    case ImportExit::kLimits:
      return absl::ResourceExhaustedError(message);
    case ImportExit::kNoJail:
      return absl::FailedPreconditionError(message);
    case ImportExit::kUsage:
    case ImportExit::kInternal:
      break;
  }
  return absl::InternalError(message);
}

std::string StageFolder(std::uint32_t stage) {
  return absl::StrCat("stage-", stage);
}

std::string StageName(ImportProgress::Stage stage) {
  switch (stage) {
    case ImportProgress::Stage::kChecking:
      return "checking";
    case ImportProgress::Stage::kFolding:
      return "folding";
    case ImportProgress::Stage::kPacking:
      return "packing";
  }
  return {};
}

std::string ToLine(const ImportProgress& progress) {
  return absl::StrCat("progress ", StageName(progress.stage), " ", progress.steps, " ", progress.steps_total);
}

std::optional<ImportProgress> ParseProgress(std::string_view line) {
  using Stage = ImportProgress::Stage;
  const std::vector<std::string> words = absl::StrSplit(absl::string_view(line.data(), line.size()), ' ');
  ImportProgress progress;
  if (words.size() != 4 || words[0] != "progress" || !absl::SimpleAtoi(words[2], &progress.steps) ||
      !absl::SimpleAtoi(words[3], &progress.steps_total) || progress.steps > progress.steps_total)
    return std::nullopt;
  for (const Stage stage : {Stage::kChecking, Stage::kFolding, Stage::kPacking}) {
    progress.stage = stage;
    if (words[1] == StageName(stage)) return progress;
  }
  return std::nullopt;
}

std::string ToJson(const ImportReport& report) {
  json::object object{{"digest", report.digest},
                      {"name", report.name},
                      {"inputs", SpecsToJson(report.inputs)},
                      {"outputs", SpecsToJson(report.outputs)},
                      {"weights_bytes", report.weights.count()},
                      {"steps", report.steps},
                      {"stage", report.stage},
                      {"stages", report.stages}};
  if (!report.packed_digest.empty()) object["packed_digest"] = report.packed_digest;
  if (!report.likely_sizes.empty())
    object["likely_sizes"] = json::array(report.likely_sizes.begin(), report.likely_sizes.end());
  if (!report.likely_rows.empty())
    object["likely_rows"] = json::array(report.likely_rows.begin(), report.likely_rows.end());
  if (!report.model_outputs.empty())
    object["model_outputs"] = json::array(report.model_outputs.begin(), report.model_outputs.end());
  if (!report.operators.empty()) {
    json::object& operators = object["operators"].emplace_object();
    for (const auto& [name, count] : report.operators) operators[name] = count;
    object["cuda_refused"] = json::array(report.cuda_refused.begin(), report.cuda_refused.end());
    if (!report.cuda_unknown.empty()) object["cuda_unknown"] = report.cuda_unknown;
  }
  return json::serialize(object);
}

absl::StatusOr<ImportReport> ParseReport(const std::string& line) {
  try {
    const json::value value = json::parse(line);
    ImportReport report;
    report.digest = std::string(value.at("digest").as_string());
    report.name = std::string(value.at("name").as_string());
    report.inputs = SpecsOf(value.at("inputs"));
    report.outputs = SpecsOf(value.at("outputs"));
    report.weights = Bytes(value.at("weights_bytes").to_number<std::uint64_t>());
    report.steps = value.at("steps").to_number<std::uint64_t>();
    report.stage = value.at("stage").to_number<std::uint32_t>();
    report.stages = value.at("stages").to_number<std::uint32_t>();
    if (const json::value* outputs = value.as_object().if_contains("model_outputs"))
      for (const json::value& output : outputs->as_array())
        report.model_outputs.emplace_back(output.as_string());
    if (const json::value* packed = value.as_object().if_contains("packed_digest"))
      report.packed_digest = std::string(packed->as_string());
    for (const auto& [key, list] :
         {std::pair("likely_sizes", &report.likely_sizes), std::pair("likely_rows", &report.likely_rows)})
      if (const json::value* sizes = value.as_object().if_contains(key))
        for (const json::value& size : sizes->as_array()) list->push_back(size.to_number<std::uint32_t>());
    if (!IsSha256Hex(report.digest) || !(report.packed_digest.empty() || IsSha256Hex(report.packed_digest)))
      return absl::InternalError("the importer's report has no digest");
    if (report.stages < 1 || report.stages > proto::kMostStages)
      return absl::InternalError(
          absl::StrCat("the importer's report tells of ", report.stages, " stages of one model"));
    if (report.stage < 1 || report.stage > report.stages)
      return absl::InternalError(
          absl::StrCat("the importer's report tells of stage ", report.stage, " of ", report.stages));
    TROUPE_RETURN_IF_ERROR(CheckLikelySizes(report));
    return report;
  } catch (const std::exception&) {
    return absl::InternalError("the importer's report is not what was agreed");
  }
}

absl::StatusOr<std::vector<ImportReport>> ParseReports(const std::string& lines) {
  std::vector<ImportReport> reports;
  for (const auto line : absl::StrSplit(lines, '\n', absl::SkipWhitespace())) {
    TROUPE_ASSIGN_OR_RETURN(reports.emplace_back(), ParseReport(std::string(line)));
    if (reports.back().stage != reports.size() || reports.back().stages != reports.front().stages)
      return absl::InternalError("the importer's reports are not those of one model's stages, in order");
  }
  if (reports.empty() || reports.size() != reports.front().stages)
    return absl::InternalError(absl::StrCat("the importer reports ", reports.size(), " stages of a model of ",
                                            reports.empty() ? 1 : reports.front().stages));
  return reports;
}

}  // namespace troupe::gpu
