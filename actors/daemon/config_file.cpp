// The configuration as a file: `key: value` lines of YAML, whose keys are the options (config.cpp).
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/daemon/config.hpp"
#include "base/nearest.hpp"
#include "base/status.hpp"
#include "base/yaml_document.hpp"

namespace troupe::actors {

namespace {

std::string Nearest(const std::string& key) {
  std::vector<std::string> keys;
  for (const auto& option : ConfigOptions()) keys.emplace_back(option.key);
  return DidYouMean(key, keys);
}

absl::StatusOr<std::string> ScalarOf(const YAML::Node& node) {
  if (node.IsScalar()) return node.Scalar();
  if (!node.IsSequence()) return absl::InvalidArgumentError("expected a value or a list of values");
  std::vector<std::string> values;
  for (const auto& item : node) {
    if (!item.IsScalar()) return absl::InvalidArgumentError("expected a list of plain values");
    values.push_back(item.Scalar());
  }
  return absl::StrJoin(values, ",");
}

constexpr const char* kAdvancedBlock = "advanced";

absl::StatusOr<const ConfigOption*> FindOption(const std::string& key) {
  const auto& options = ConfigOptions();
  const auto option =
      std::find_if(options.begin(), options.end(), [&](const auto& o) { return o.key == key; });
  if (option == options.end()) {
    const auto meant = Nearest(key);
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown key", meant.empty() ? "; trouped --help and --help-advanced list them" : meant));
  }
  return &*option;
}

absl::Status ApplyKey(const std::string& key, const YAML::Node& node, bool in_advanced,
                      DaemonConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(const ConfigOption* option, FindOption(key));
  if (option->is_advanced() != in_advanced)
    return absl::InvalidArgumentError(
        in_advanced ? "this is not an advanced option; write it outside of the block 'advanced:'"
                    : "this is an advanced option; write it in the block 'advanced:'");
  TROUPE_ASSIGN_OR_RETURN(const auto value, ScalarOf(node));
  return option->Give(value, config);
}

// The keys of the file, or of its block.
absl::Status ApplyMap(const YAML::Node& map, bool in_advanced, const std::string& path,
                      DaemonConfig& config) {
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const auto key = entry.first.IsScalar() ? entry.first.Scalar() : std::string();
    // The block may be empty: its keys are commented out.
    const bool is_block = entry.second.IsMap() || entry.second.IsNull();
    const bool opens_block = !in_advanced && key == kAdvancedBlock && is_block;
    absl::Status status;
    if (!seen.insert(key).second) {
      status = absl::InvalidArgumentError("is there twice");
    } else if (opens_block) {
      TROUPE_RETURN_IF_ERROR(ApplyMap(entry.second, true, path, config));
    } else {
      status = ApplyKey(key, entry.second, in_advanced, config);
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", entry.first.Mark().line + 1, ": ", key, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyConfigFile(const std::string& path, DaemonConfig& config) {
  std::ifstream file(path);
  if (std::error_code error; std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(
        absl::StrCat("the configuration '", path, "' is a directory; name a YAML file"));
  if (!file)
    return absl::NotFoundError(absl::StrCat("cannot read the configuration '", path, "': check --config"));
  std::ostringstream text;
  text << file.rdbuf();
  return ApplyConfig(text.str(), path, config);
}

absl::Status ApplyConfig(const std::string& text, const std::string& path, DaemonConfig& config) {
  YAML::Node root;
  try {
    root = LoadOneDocument(text);
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", e.mark.line + 1, ": this is not valid YAML: ", e.msg));
  }
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) return absl::InvalidArgumentError(absl::StrCat(path, ":1: expected 'key: value' lines"));
  return ApplyMap(root, false, path, config);
}

absl::Status SetOption(const std::string& assignment, DaemonConfig& config) {
  const auto equals = assignment.find('=');
  if (equals == std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat("found '", assignment, "', expected KEY=VALUE"));
  const std::string key = assignment.substr(0, equals);
  const auto option = FindOption(key);
  absl::Status status = option.status();
  if (option.ok()) status = (*option)->Give(assignment.substr(equals + 1), config);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", status.message()));
}

}  // namespace troupe::actors
