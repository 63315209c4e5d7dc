#include "shell/verb.hpp"

#include <map>

#include "absl/strings/numbers.h"
#include "base/check.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

const std::string& Arguments::Text(const std::string& name) const {
  static const std::string kEmpty;
  const auto& values = All(name);
  return values.empty() ? kEmpty : values.front();
}

const std::vector<std::string>& Arguments::All(const std::string& name) const {
  static const std::vector<std::string> kNone;
  const auto found = values_.find(name);
  return found == values_.end() ? kNone : found->second;
}

Duration Arguments::DurationOr(const std::string& name, Duration otherwise) const {
  if (!Has(name)) return otherwise;
  Duration value{};
  TROUPE_CHECK(ParseDuration(Text(name), value), "durations are checked before a verb runs");
  return value;
}

double Arguments::NumberOr(const std::string& name, double otherwise) const {
  if (!Has(name)) return otherwise;
  double value = 0;
  TROUPE_CHECK(absl::SimpleAtod(Text(name), &value), "numbers are checked before a verb runs");
  return value;
}

std::string GroupSummary(const std::string& group) {
  static const std::map<std::string, std::string> kGroups = {
      {"ca", "The certificate authority: who may take part, and as what"},
      {"chaos", "Faults on purpose, by a plan"},
      {"cluster", "The cluster as a whole"},
      {"function", "Functions: models that are published with an objective"},
      {"gpu", "GPUs and their workers"},
      {"key", "API keys: who may ask what over HTTP"},
      {"kill", "Failures on purpose"},
      {"node", "Nodes: the machines with GPUs"},
      {"profile", "Profiles: how fast functions are on shares of a GPU"},
      {"workflow", "Workflows: graphs of functions, and their runs"},
  };
  const auto found = kGroups.find(group);
  return found == kGroups.end() ? "" : found->second;
}

bool ParseGpuName(const std::string& text, GpuName& out) {
  const auto slash = text.rfind('/');
  if (slash == std::string::npos || slash == 0) return false;
  const std::string digits = text.substr(slash + 1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return false;
  out.node = text.substr(0, slash);
  return absl::SimpleAtoi(digits, &out.index);
}

std::string WrongFor(Kind kind, const std::string& value) {
  Duration duration{};
  double number = 0;
  std::int64_t version = 0;
  GpuName gpu;
  switch (kind) {
    case Kind::kDuration:
      if (ParseDuration(value, duration) && duration > Duration::zero()) return "";
      return Cat("'", value, "' is not a valid time; write it like 50ms, 1.5s or 2m");
    case Kind::kNumber:
      if (absl::SimpleAtod(value, &number) && number >= 0 && number <= 1e15) return "";
      return Cat("'", value, "' is not a whole number from 0 up");
    case Kind::kVersion:
      if (absl::SimpleAtoi(value, &version) && version > 0 && value == Cat(version)) return "";
      return Cat("'", value,
                 "' is not a valid version; they are whole numbers from 1 up, as 'function show' has them");
    case Kind::kGpu:
      if (ParseGpuName(value, gpu)) return "";
      return Cat("'", value, "' names no GPU; write NODE/N, as 'troupe gpu list' shows them");
    default:
      return value.empty() ? "it is empty" : "";
  }
}

}  // namespace troupe::shell
