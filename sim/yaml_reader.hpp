// Reads the simulator's YAML files, key by key; what is wrong is said with its file, line and column, and
// with what was expected there.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::sim {

class YamlReader {
 public:
  // Reads one value; what was expected when it is wrong, empty when it is right.
  using Set = std::function<std::string(const YAML::Node&)>;
  using Keys = std::map<std::string, Set>;

  // `name` is what the messages call the file.
  explicit YamlReader(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] absl::Status Wrong(const YAML::Mark& mark, const std::string& what) const;
  [[nodiscard]] absl::StatusOr<YAML::Node> Load(const std::string& text) const;
  [[nodiscard]] absl::Status Map(const YAML::Node& map, const Keys& keys) const;

 private:
  const std::string name_;
};

// Each reads into `out`, which outlives it.
[[nodiscard]] YamlReader::Set ReadCount(std::uint32_t& out, std::uint32_t most);
[[nodiscard]] YamlReader::Set ReadSize(Bytes& out);
[[nodiscard]] YamlReader::Set ReadSpan(Duration& out);  // more than nothing
[[nodiscard]] YamlReader::Set ReadWord(std::string& out);
[[nodiscard]] YamlReader::Set ReadFlag(bool& out);
[[nodiscard]] YamlReader::Set ReadRate(BytesPerSecond& out);
// What `parse` says is what was expected.
template <class T>
[[nodiscard]] YamlReader::Set ReadParsed(T& out, absl::StatusOr<T> (*parse)(const std::string&)) {
  return [&out, parse](const YAML::Node& value) -> std::string {
    auto parsed = parse(value.IsScalar() ? value.Scalar() : std::string());
    if (!parsed.ok()) return std::string(parsed.status().message());
    out = *std::move(parsed);
    return "";
  };
}

}  // namespace troupe::sim
