#include "shell/declarative/manifest.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/digest.hpp"
#include "base/nearest.hpp"
#include "base/status.hpp"
#include "shell/declarative/settings.hpp"
#include "shell/declarative/yaml_map.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

namespace {

const std::vector<std::string> kKinds = {"function", "workflow"};
constexpr std::size_t kMostWorkflowText = 1 << 20;  // as the manager takes it

bool ParseVersionNumber(const std::string& text, std::uint64_t& out) {
  return absl::SimpleAtoi(text, &out) && out > 0 && text == Cat(out) && text.size() <= 18;
}

std::vector<std::string> KeysOfFunction() {
  std::vector<std::string> keys = {"kind", "name", "model", "versions"};
  keys.insert(keys.end(), SettingKeys().begin(), SettingKeys().end());
  return keys;
}

std::vector<std::string> KeysOfVersion() {
  std::vector<std::string> keys = {"model", "weight"};
  keys.insert(keys.end(), SettingKeys().begin(), SettingKeys().end());
  return keys;
}

absl::Status ReadModel(const YamlMap& map, const Document& document, VersionManifest& version) {
  TROUPE_ASSIGN_OR_RETURN(version.model, map.Text("model"));
  version.model_place = map.PlaceOf("model");
  if (version.model.starts_with(kByDigest)) {
    if (IsSha256Hex(std::string_view(version.model).substr(kByDigest.size()))) return absl::OkStatus();
    return map.Wrong("model", "a digest has 64 hexadecimal digits, 0 to 9 and a to f");
  }
  if (version.model.front() != '/' && !document.folder.empty())
    version.model = Cat(document.folder, "/", version.model);
  return absl::OkStatus();
}

class FunctionReader {
 public:
  FunctionReader(const Document& document, FunctionManifest& function)
      : document_(document), function_(function) {}

  absl::Status Read(const YAML::Node& root) {
    TROUPE_ASSIGN_OR_RETURN(const auto map, YamlMap::Of(root, document_, "a function", KeysOfFunction()));
    VersionManifest common{.place = function_.place};
    common.settings.set_name(function_.name);
    TROUPE_RETURN_IF_ERROR(ReadSettings(map, common.settings));
    if (map.Has("model")) TROUPE_RETURN_IF_ERROR(ReadModel(map, document_, common));
    if (map.Has("versions")) return ReadVersions(map, common);
    if (common.model.empty())
      return WrongAt(map.place(), "a function needs 'model', its ONNX file, or 'versions'");
    TROUPE_RETURN_IF_ERROR(CheckSharing(map, common.settings));
    function_.only = std::move(common);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadVersions(const YamlMap& map, const VersionManifest& common) {
    if (!common.model.empty())
      return WrongAt(common.model_place, "'model' stands beside 'versions'; each version has its own");
    TROUPE_ASSIGN_OR_RETURN(const auto versions,
                            YamlMap::Of(map.Node("versions"), document_, "'versions'", {}));
    for (const auto& entry : map.Node("versions"))
      TROUPE_RETURN_IF_ERROR(ReadVersion(entry.first, entry.second, common));
    if (function_.versions.empty()) return map.Wrong("versions", "at least one version is expected");
    return CheckWeights(versions.place());
  }

  absl::Status ReadVersion(const YAML::Node& key, const YAML::Node& value, const VersionManifest& common) {
    VersionManifest version = common;
    version.place = PlaceIn(document_, key);
    std::uint64_t number = 0;
    if (!ParseVersionNumber(key.Scalar(), number))
      return WrongAt(version.place, Cat("'", Printable(key.Scalar()),
                                        "' is not a valid version; versions are whole numbers from 1 up"));
    version.settings.set_version(key.Scalar());
    TROUPE_RETURN_IF_ERROR(value.IsScalar() ? ReadWeight(value, version) : ReadBody(value, version));
    function_.versions.emplace(number, std::move(version));
    return absl::OkStatus();
  }

  // "1: 90%": a version that the cluster has.
  absl::Status ReadWeight(const YAML::Node& value, VersionManifest& version) {
    std::uint32_t percent = 0;
    if (!ParsePercent(value.Scalar(), 0, percent))
      return WrongAt(PlaceIn(document_, value),
                     Cat("the weight of a version is '", Printable(value.Scalar()),
                         "'; a whole number of percent from 0 to 100 is expected, like 90%"));
    version.weight = percent;
    return absl::OkStatus();
  }

  absl::Status ReadBody(const YAML::Node& value, VersionManifest& version) {
    TROUPE_ASSIGN_OR_RETURN(const auto map, YamlMap::Of(value, document_, "a version", KeysOfVersion()));
    TROUPE_RETURN_IF_ERROR(ReadSettings(map, version.settings));
    TROUPE_RETURN_IF_ERROR(CheckSharing(map, version.settings));
    if (map.Has("weight")) {
      TROUPE_ASSIGN_OR_RETURN(version.weight, map.Percent("weight", 0));
    }
    if (!map.Has("model")) return WrongAt(version.place, "a version needs 'model', its ONNX file");
    return ReadModel(map, document_, version);
  }

  [[nodiscard]] absl::Status CheckWeights(const Place& place) const {
    std::uint32_t sum = 0;
    for (const auto& [number, version] : function_.versions) sum += version.weight.value_or(0);
    if (!function_.has_weights() || sum == 100) return absl::OkStatus();
    return WrongAt(place, Cat("the weights of the versions are ", sum, "% together; they must be 100%"));
  }

  const Document& document_;
  FunctionManifest& function_;
};

// The text of a document as a workflow file, without its kind.
absl::StatusOr<std::string> WorkflowText(const Document& document, const YamlMap& map) {
  std::string text;
  if (document.text.size() + static_cast<std::size_t>(document.first_line) > kMostWorkflowText)
    return WrongAt(map.place(), Cat("a workflow and what stands before it in its file has at most ",
                                    FormatBytes(Bytes(kMostWorkflowText))));
  // So lines keep their numbers.
  text.append(static_cast<std::size_t>(document.first_line - 1), '\n');
  int line = 0;
  const int kind_line = map.Node("kind").Mark().line;
  std::string_view rest = document.text;
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const auto one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line++ == kind_line) {
      if (!one.starts_with("kind:"))
        return WrongAt(map.PlaceOf("kind"), "'kind' of a workflow stands on a line of its own");
      text += "#";
    }
    Append(&text, one, "\n");
  }
  return text;
}

absl::Status ReadDocument(const Document& document, Manifests& manifests) {
  TROUPE_ASSIGN_OR_RETURN(const auto root, ParseYaml(document));
  TROUPE_ASSIGN_OR_RETURN(const auto map, YamlMap::Of(root, document, "a document", {}));
  if (!map.Node("kind").IsDefined())
    return WrongAt(
        map.PlaceOf("kind"),
        "a document lacks 'kind': write 'kind: function' or 'kind: workflow' (a workflow file alone is "
        "sent with 'troupe workflow submit')");
  TROUPE_ASSIGN_OR_RETURN(const auto kind, map.Text("kind"));
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end())
    return map.Wrong("kind", Cat("'function' or 'workflow' is expected", DidYouMean(kind, kKinds)));
  TROUPE_ASSIGN_OR_RETURN(const auto name, map.Text("name"));
  if (kind == "function") {
    auto& function = manifests.functions.emplace_back(FunctionManifest{.place = map.place(), .name = name});
    return FunctionReader(document, function).Read(root);
  }
  WorkflowManifest workflow{.place = map.place(), .name = name};
  if (map.Has("version")) {
    TROUPE_ASSIGN_OR_RETURN(workflow.version, map.Text("version"));
  }
  TROUPE_ASSIGN_OR_RETURN(workflow.yaml, WorkflowText(document, map));
  manifests.workflows.push_back(std::move(workflow));
  return absl::OkStatus();
}

// Functions and workflows share one space of names. A workflow may stand there with several versions.
absl::Status CheckNames(const Manifests& manifests) {
  std::map<std::string, Place> functions;
  std::map<std::pair<std::string, std::string>, Place> workflows;
  const auto twice = [](const std::string& name, const Place& place, const Place& before) {
    return WrongAt(place, Cat("'", Printable(name), "' stands there twice; the first is at ", before.file,
                              ":", before.line));
  };
  for (const auto& function : manifests.functions) {
    const auto [before, added] = functions.emplace(function.name, function.place);
    if (!added) return twice(function.name, function.place, before->second);
  }
  for (const auto& workflow : manifests.workflows) {
    if (const auto function = functions.find(workflow.name); function != functions.end())
      return twice(workflow.name, workflow.place, function->second);
    const auto [before, added] =
        workflows.emplace(std::pair(workflow.name, workflow.version), workflow.place);
    if (!added) return twice(workflow.name, workflow.place, before->second);
  }
  return absl::OkStatus();
}

}  // namespace

bool FunctionManifest::has_weights() const {
  return std::any_of(versions.begin(), versions.end(),
                     [](const auto& version) { return version.second.weight.has_value(); });
}

absl::StatusOr<Manifests> ParseManifests(const std::vector<Document>& documents) {
  Manifests manifests;
  for (const auto& document : documents) TROUPE_RETURN_IF_ERROR(ReadDocument(document, manifests));
  TROUPE_RETURN_IF_ERROR(CheckNames(manifests));
  return manifests;
}

}  // namespace troupe::shell
