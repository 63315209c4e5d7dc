#include "cluster/workflows/yaml_fields.hpp"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::cluster {

std::uint32_t LineOf(const YAML::Node& node) {
  return static_cast<std::uint32_t>(node.Mark().line + 1);
}

const char* KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return "a single value";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    default:
      return "nothing";
  }
}

bool YamlFields::IsMap(const YAML::Node& node, const std::string& what) {
  if (node.IsMap()) return true;
  Error(node, absl::StrCat(what, " is ", KindOf(node), ", and a mapping is expected"));
  return false;
}

void YamlFields::Keys(const YAML::Node& map, const std::string& what, const std::set<std::string>& known) {
  std::set<std::string> seen;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) {
      Error(entry.first, absl::StrCat("a key of ", what, " is ", KindOf(entry.first)));
      continue;
    }
    const std::string& key = entry.first.Scalar();
    if (!known.empty() && !known.contains(key)) {
      Error(entry.first, absl::StrCat(what, " has no '", key, "'; known are: ", absl::StrJoin(known, ", ")));
    } else if (!seen.insert(key).second) {
      Error(entry.first, absl::StrCat("'", key, "' stands twice in ", what));
    }
  }
}

void YamlFields::Require(const YAML::Node& map, const std::string& what,
                         const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!map[key]) Error(map, absl::StrCat(what, " lacks '", key, "'"));
  }
}

std::string YamlFields::Scalar(const YAML::Node& node, const std::string& what) {
  if (node.IsScalar() && !node.Scalar().empty()) return node.Scalar();
  Error(node, absl::StrCat(what, " is ", node.IsScalar() ? "empty" : KindOf(node),
                           ", and a single value is expected"));
  return {};
}

std::int64_t YamlFields::Integer(const YAML::Node& node, const std::string& what, std::int64_t least,
                                 std::int64_t most) {
  const std::string text = Scalar(node, what);
  if (text.empty()) return least;
  std::int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && rest == text.data() + text.size() && value >= least && value <= most)
    return value;
  const std::string range = most == INT64_MAX ? absl::StrCat(" up") : absl::StrCat(" to ", most);
  Error(node, absl::StrCat(what, " is '", text, "', and a whole number from ", least, range, " is expected"));
  return least;
}

Duration YamlFields::Time(const YAML::Node& node, const std::string& what) {
  Duration time{};
  const std::string text = Scalar(node, what);
  if (text.empty()) return time;
  if (ParseDuration(text, time) && time > Duration::zero()) return time;
  Error(node, absl::StrCat("'", text, "' is not a valid ", what, "; write one like 500ms, 5s or 2m"));
  return Duration::zero();
}

}  // namespace troupe::cluster
