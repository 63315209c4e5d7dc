// YAML MAP: one mapping of a document, read key by key. The first mistake is an error with file and line; for
// an unknown key the error names the nearest known one.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "shell/declarative/manifest.hpp"

namespace troupe::shell {

class YamlMap {
 public:
  // `what`: "a function", for errors. InvalidArgument: it is not a mapping, has an unknown key, or one twice.
  static absl::StatusOr<YamlMap> Of(const YAML::Node& node, const Document& document, std::string what,
                                    const std::vector<std::string>& known);

  [[nodiscard]] bool Has(const std::string& key) const;
  [[nodiscard]] YAML::Node Node(const std::string& key) const;
  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] Place PlaceOf(const std::string& key) const;
  [[nodiscard]] absl::Status Wrong(const std::string& key, std::string_view what) const;

  // The value of a key that is there; an error when it is not a scalar, is empty or is of the wrong form.
  [[nodiscard]] absl::StatusOr<std::string> Text(const std::string& key) const;
  [[nodiscard]] absl::StatusOr<Duration> Time(const std::string& key) const;
  [[nodiscard]] absl::StatusOr<double> Number(const std::string& key) const;
  // "40%", "40 %" or "40".
  [[nodiscard]] absl::StatusOr<std::uint32_t> Percent(const std::string& key, std::uint32_t least) const;

 private:
  YamlMap(const YAML::Node& node, const Document& document, std::string what);

  YAML::Node node_;
  const Document* document_;
  std::string what_;
  Place place_;
};

[[nodiscard]] Place PlaceIn(const Document& document, const YAML::Node& node);
// "40%", "40 %" or "40", from `least` to 100.
[[nodiscard]] bool ParsePercent(std::string_view text, std::uint32_t least, std::uint32_t& out);
// One document; it may have no anchors, aliases or tags, and is not nested deeply. InvalidArgument with file and line.
[[nodiscard]] absl::StatusOr<YAML::Node> ParseYaml(const Document& document);

}  // namespace troupe::shell
