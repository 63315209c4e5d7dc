#include "shell/declarative/yaml_map.hpp"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "base/nearest.hpp"
#include "base/status.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

namespace {

constexpr std::size_t kMostNodes = 100'000;
constexpr std::size_t kDeepest = 32;

// Follows a document without keeping anything of it, and throws at what is refused.
class DocumentGuard final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Count(mark, "", anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YAML::ParserException(mark, "aliases ('*name') are not taken; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string&) override {
    Count(mark, tag, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor);
  }
  void OnMapEnd() override { --depth_; }

 private:
  void Count(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0)
      throw YAML::ParserException(mark, "anchors ('&name') are not taken; write the value out");
    // yaml-cpp says "?" of a plain value and "!" of a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!")
      throw YAML::ParserException(mark, Cat("tags ('", tag, "') are not taken"));
    if (++nodes_ > kMostNodes)
      throw YAML::ParserException(mark, Cat("a document has at most ", kMostNodes, " values"));
  }
  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    Count(mark, tag, anchor);
    if (++depth_ > kDeepest)
      throw YAML::ParserException(mark, Cat("values are nested more than ", kDeepest, " deep"));
  }

  std::size_t nodes_ = 0;
  std::size_t depth_ = 0;
};

std::string WhatItIs(const YAML::Node& node) {
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a mapping";
  return node.IsScalar() ? Cat("'", Printable(node.Scalar()), "'") : "empty";
}

}  // namespace

absl::Status WrongAt(const Place& place, std::string_view what) {
  return absl::InvalidArgumentError(Cat(place.file, ":", place.line, ": ", what));
}

Place PlaceIn(const Document& document, const YAML::Node& node) {
  return {document.file, document.first_line + std::max(0, node.Mark().line)};
}

bool ParsePercent(std::string_view text, std::uint32_t least, std::uint32_t& out) {
  if (text.ends_with('%')) text.remove_suffix(1);
  return absl::SimpleAtoi(absl::StripTrailingAsciiWhitespace(ForAbsl(text)), &out) && out >= least &&
         out <= 100;
}

absl::StatusOr<YAML::Node> ParseYaml(const Document& document) {
  // yaml-cpp reports text that is not YAML by exceptions; they end here.
  try {
    std::istringstream stream(document.text);
    YAML::Parser parser(stream);
    DocumentGuard guard;
    parser.HandleNextDocument(guard);
    return YAML::Load(document.text);
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 0 : std::max(0, error.mark.line);
    return WrongAt({document.file, document.first_line + line}, Cat("this is not valid: ", error.msg));
  }
}

YamlMap::YamlMap(const YAML::Node& node, const Document& document, std::string what)
    : node_(node), document_(&document), what_(std::move(what)), place_(PlaceIn(document, node)) {}

absl::StatusOr<YamlMap> YamlMap::Of(const YAML::Node& node, const Document& document, std::string what,
                                    const std::vector<std::string>& known) {
  YamlMap map(node, document, std::move(what));
  if (!node.IsMap())
    return WrongAt(map.place_, Cat(map.what_, " is ", WhatItIs(node), ", and a mapping is expected"));
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const auto place = PlaceIn(document, entry.first);
    if (!entry.first.IsScalar())
      return WrongAt(place, Cat("a key of ", map.what_, " is ", WhatItIs(entry.first)));
    const auto& key = entry.first.Scalar();
    if (!known.empty() && std::find(known.begin(), known.end(), key) == known.end()) {
      const auto nearest = DidYouMean(key, known);
      return WrongAt(place, Cat(map.what_, " has no '", Printable(key), "'",
                                nearest.empty() ? Cat("; it has ", absl::StrJoin(known, ", ")) : nearest));
    }
    if (!seen.insert(key).second)
      return WrongAt(place, Cat("'", Printable(key), "' stands twice in ", map.what_));
  }
  return map;
}

bool YamlMap::Has(const std::string& key) const {
  return Node(key).IsDefined();
}

YAML::Node YamlMap::Node(const std::string& key) const {
  return std::as_const(node_)[key];
}

Place YamlMap::PlaceOf(const std::string& key) const {
  const auto node = Node(key);
  // An empty value has no place of its own.
  if (node.IsDefined() && !node.IsNull()) return PlaceIn(*document_, node);
  for (const auto& entry : node_)
    if (entry.first.IsScalar() && entry.first.Scalar() == key) return PlaceIn(*document_, entry.first);
  return place_;
}

absl::Status YamlMap::Wrong(const std::string& key, std::string_view what) const {
  return WrongAt(PlaceOf(key), Cat("'", key, "' of ", what_, " is ", WhatItIs(Node(key)), "; ", what));
}

absl::StatusOr<std::string> YamlMap::Text(const std::string& key) const {
  const auto node = Node(key);
  if (node.IsDefined() && node.IsScalar() && !node.Scalar().empty()) return node.Scalar();
  if (!node.IsDefined()) return WrongAt(place_, Cat(what_, " lacks '", key, "'"));
  return Wrong(key, "a single value is expected");
}

absl::StatusOr<Duration> YamlMap::Time(const std::string& key) const {
  TROUPE_ASSIGN_OR_RETURN(const auto text, Text(key));
  Duration time{};
  if (ParseDuration(text, time) && time > Duration::zero()) return time;
  return Wrong(key, "a time like 50ms, 1.5s or 2m is expected");
}

absl::StatusOr<double> YamlMap::Number(const std::string& key) const {
  TROUPE_ASSIGN_OR_RETURN(const auto text, Text(key));
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) return number;
  return Wrong(key, "a number is expected");
}

absl::StatusOr<std::uint32_t> YamlMap::Percent(const std::string& key, std::uint32_t least) const {
  TROUPE_ASSIGN_OR_RETURN(const auto text, Text(key));
  std::uint32_t percent = 0;
  if (ParsePercent(text, least, percent)) return percent;
  return Wrong(key, Cat("a whole number of percent from ", least, " to 100 is expected, like 40%"));
}

}  // namespace troupe::shell
