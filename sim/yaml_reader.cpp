#include "sim/yaml_reader.hpp"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/yaml_document.hpp"

namespace troupe::sim {

absl::Status YamlReader::Wrong(const YAML::Mark& mark, const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, ":", mark.is_null() ? 1 : mark.line + 1, ":",
                                                 mark.is_null() ? 1 : mark.column + 1, ": ", what));
}

absl::StatusOr<YAML::Node> YamlReader::Load(const std::string& text) const {
  try {
    return LoadOneDocument(text);
  } catch (const YAML::Exception& error) {
    return Wrong(error.mark, absl::StrCat("this is not valid YAML: ", error.msg));
  }
}

absl::Status YamlReader::Map(const YAML::Node& map, const Keys& keys) const {
  if (!map.IsMap()) return Wrong(map.Mark(), "expected 'key: value'");
  for (const auto& entry : map) {
    const auto key = entry.first.IsScalar() ? entry.first.Scalar() : std::string();
    const auto known = keys.find(key);
    if (known == keys.end())
      return Wrong(
          entry.first.Mark(),
          absl::StrCat("found '", key, "', expected one of: ",
                       absl::StrJoin(keys, ", ", [](auto* out, const auto& k) { out->append(k.first); })));
    const auto expected = known->second(entry.second);
    if (expected.empty()) continue;
    const auto found = entry.second.IsScalar() ? entry.second.Scalar() : std::string("no single value");
    return Wrong(entry.second.Mark(), absl::StrCat(key, ": found '", found, "', expected ", expected));
  }
  return absl::OkStatus();
}

YamlReader::Set ReadCount(std::uint32_t& out, std::uint32_t most) {
  return [&out, most](const YAML::Node& value) -> std::string {
    if (value.IsScalar() && absl::SimpleAtoi(value.Scalar(), &out) && out >= 1 && out <= most) return "";
    return absl::StrCat("an integer from 1 to ", most);
  };
}

YamlReader::Set ReadSize(Bytes& out) {
  return [&out](const YAML::Node& value) -> std::string {
    if (value.IsScalar() && ParseBytes(value.Scalar(), out) && out.count() > 0) return "";
    return "a size such as 8GiB, more than nothing";
  };
}

YamlReader::Set ReadSpan(Duration& out) {
  return [&out](const YAML::Node& value) -> std::string {
    if (value.IsScalar() && ParseDuration(value.Scalar(), out) && out > Duration()) return "";
    return "a time such as 80ms or 1.3s, more than nothing";
  };
}

YamlReader::Set ReadWord(std::string& out) {
  return [&out](const YAML::Node& value) -> std::string {
    if (!value.IsScalar() || value.Scalar().empty()) return "a name";
    out = value.Scalar();
    return "";
  };
}

YamlReader::Set ReadFlag(bool& out) {
  return [&out](const YAML::Node& value) -> std::string {
    const auto text = value.IsScalar() ? value.Scalar() : std::string();
    if (text != "true" && text != "false") return "true or false";
    out = text == "true";
    return "";
  };
}

YamlReader::Set ReadRate(BytesPerSecond& out) {
  return [&out](const YAML::Node& value) -> std::string {
    Bytes bytes;
    if (!value.IsScalar() || !ParseBytes(value.Scalar(), bytes) || bytes.count() == 0)
      return "bytes per second such as 12GB";
    out = BytesPerSecond{static_cast<double>(bytes.count())};
    return "";
  };
}

}  // namespace troupe::sim
