#include "cluster/workflows/yaml_fields.hpp"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest.hpp"

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

std::set<std::string> YamlFields::Keys(const YAML::Node& map, const std::string& what,
                                       const std::vector<std::string>& known,
                                       const std::vector<std::string>& former) {
  std::set<std::string> seen;
  std::set<std::string> misspelt;
  const auto in = [](const std::vector<std::string>& keys, const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  std::vector<std::string> missing;
  for (const auto& key : known)
    if (!map[key]) missing.push_back(key);
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) {
      Error(entry.first, absl::StrCat("a key of ", what, " is ", KindOf(entry.first)));
      continue;
    }
    const std::string& key = entry.first.Scalar();
    if (!known.empty() && !in(known, key) && !in(former, key)) {
      const auto meant = DidYouMean(key, missing);
      Error(entry.first,
            absl::StrCat(what, " has no '", key, "'", meant,
                         meant.empty() ? absl::StrCat("; known are: ", absl::StrJoin(known, ", ")) : ""));
      for (const auto& one : missing)
        if (!meant.empty() && meant == DidYouMean(key, {one})) misspelt.insert(one);
    } else if (!seen.insert(key).second) {
      Error(entry.first, absl::StrCat("'", key, "' stands twice in ", what));
    }
  }
  return misspelt;
}

void YamlFields::Require(const YAML::Node& map, const std::string& what, const std::vector<std::string>& keys,
                         const std::set<std::string>& misspelt) {
  for (const std::string& key : keys) {
    if (!map[key] && !misspelt.contains(key)) Error(map, absl::StrCat(what, " lacks '", key, "'"));
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
