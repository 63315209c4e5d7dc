// The configuration as a file: `key: value` lines of YAML, whose keys are the options (config.cpp).
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/daemon/config.hpp"
#include "base/nearest.hpp"
#include "base/status.hpp"

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

absl::Status ApplyKey(const std::string& key, const YAML::Node& node, DaemonConfig& config) {
  const auto& options = ConfigOptions();
  const auto option =
      std::find_if(options.begin(), options.end(), [&](const auto& o) { return o.key == key; });
  if (option == options.end()) return absl::InvalidArgumentError(absl::StrCat("unknown key", Nearest(key)));
  TROUPE_ASSIGN_OR_RETURN(const auto value, ScalarOf(node));
  return option->set(value, config);
}

}  // namespace

absl::Status ApplyConfigFile(const std::string& path, DaemonConfig& config) {
  std::ifstream file(path);
  if (!file)
    return absl::NotFoundError(absl::StrCat("cannot read the configuration '", path, "': check --config"));
  std::ostringstream text;
  text << file.rdbuf();
  return ApplyConfig(text.str(), path, config);
}

absl::Status ApplyConfig(const std::string& text, const std::string& path, DaemonConfig& config) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", e.mark.line + 1, ": this is not valid YAML: ", e.msg));
  }
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) return absl::InvalidArgumentError(absl::StrCat(path, ":1: expected 'key: value' lines"));
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const auto key = entry.first.IsScalar() ? entry.first.Scalar() : std::string();
    auto status = seen.insert(key).second ? ApplyKey(key, entry.second, config)
                                          : absl::InvalidArgumentError("is there twice");
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", entry.first.Mark().line + 1, ": ", key, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe::actors
