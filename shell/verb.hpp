// VERBS: everything that can be asked, as data. The command line, the interactive shell, its help and its
// completion read the one table of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::shell {

class Session;

// What an argument names: how it is checked and how it is completed.
enum class Kind {
  kText,
  kFlag,
  kDuration,
  kNumber,
  kVersion,
  kFile,
  kTensorFile,
  kFunction,
  kWorkflow,
  kServable,
  kNode,
  kGpu,
  kRun
};

struct Argument {
  std::string name;  // "NAME" for a positional one, "--tenant" for an option
  Kind kind = Kind::kText;
  std::string help = {};
  bool required = false;
  bool repeated = false;

  [[nodiscard]] bool positional() const { return name[0] != '-'; }
};

// The words of one command, by the names of its arguments; checked against the kinds before a verb sees them.
class Arguments {
 public:
  void Set(const std::string& name, std::vector<std::string> values) { values_[name] = std::move(values); }
  [[nodiscard]] bool Has(const std::string& name) const { return values_.contains(name); }
  // "" when it was not given.
  [[nodiscard]] const std::string& Text(const std::string& name) const;
  [[nodiscard]] const std::vector<std::string>& All(const std::string& name) const;
  [[nodiscard]] Duration DurationOr(const std::string& name, Duration otherwise) const;
  [[nodiscard]] double NumberOr(const std::string& name, double otherwise) const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

struct Verb {
  std::string group = {};  // "function"; "" for `infer`, `top`, `events`
  std::string name = {};
  std::string summary = {};
  std::vector<Argument> arguments = {};
  absl::Status (*run)(Session&, const Arguments&) = nullptr;

  // "function deploy"
  [[nodiscard]] std::string words() const { return group.empty() ? name : group + " " + name; }
};

// In the order in which help shows them.
[[nodiscard]] const std::vector<Verb>& Verbs();
// "the functions of the cluster", for help; "" for an unknown group.
[[nodiscard]] std::string GroupSummary(const std::string& group);

struct GpuName {
  std::string node;
  std::uint32_t index = 0;
};
// Reads "NODE/N".
[[nodiscard]] bool ParseGpuName(const std::string& text, GpuName& out);
// Why `value` is not of this kind, with an example; empty when it is.
[[nodiscard]] std::string WrongFor(Kind kind, const std::string& value);

}  // namespace troupe::shell
