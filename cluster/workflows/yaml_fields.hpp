// YAML FIELDS: reads the keys and values of a workflow file's mappings. What is wrong is noted with its line, and
// reading goes on, so that one answer can tell everything. The text is not trusted.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cluster/workflows/mistakes.hpp"

namespace troupe::cluster {

[[nodiscard]] std::uint32_t LineOf(const YAML::Node& node);
[[nodiscard]] const char* KindOf(const YAML::Node& node);

class YamlFields {
 public:
  explicit YamlFields(Mistakes& mistakes) : mistakes_(mistakes) {}

  void Error(const YAML::Node& node, std::string message) { mistakes_.Add(LineOf(node), std::move(message)); }
  bool IsMap(const YAML::Node& node, const std::string& what);
  // Notes keys that are not known (an empty `known`: any is), and keys that stand there twice. `former` names are read
  // too, and not shown. Returns the known keys that are missing and may be meant by keys that are not known.
  std::set<std::string> Keys(const YAML::Node& map, const std::string& what,
                             const std::vector<std::string>& known,
                             const std::vector<std::string>& former = {});
  // Notes the keys that are missing, but for those that are `misspelt`: that was noted.
  void Require(const YAML::Node& map, const std::string& what, const std::vector<std::string>& keys,
               const std::set<std::string>& misspelt);
  // "": it is not a single value; that is noted.
  std::string Scalar(const YAML::Node& node, const std::string& what);
  // `least` where it is no whole number from `least` to `most`; that is noted.
  std::int64_t Integer(const YAML::Node& node, const std::string& what, std::int64_t least,
                       std::int64_t most = INT64_MAX);
  // Above zero; zero: it is not a time; that is noted.
  Duration Time(const YAML::Node& node, const std::string& what);

 private:
  Mistakes& mistakes_;
};

}  // namespace troupe::cluster
