#include "shell/chaos_plan.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "base/yaml_document.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

using Fault = proto::InjectFault;
constexpr Duration kLongest = std::chrono::minutes(10);
constexpr std::size_t kMostFaults = 1000;

bool IsOfWorker(Fault::Kind kind) {
  return kind == Fault::KILL_WORKER || kind == Fault::HANG_WORKER || kind == Fault::STALL_LINK;
}
bool Lasts(Fault::Kind kind) {
  return kind == Fault::STOP_DAEMON || kind == Fault::CUT_TENSORS;
}

std::vector<std::string> FaultNames() {
  std::vector<std::string> names;
  for (int kind = Fault::Kind_MIN; kind <= Fault::Kind_MAX; ++kind)
    if (Fault::Kind_IsValid(kind)) names.push_back(FaultName(static_cast<Fault::Kind>(kind)));
  return names;
}

bool KindOf(const std::string& name, Fault::Kind& out) {
  auto upper = absl::AsciiStrToUpper(name);
  std::replace(upper.begin(), upper.end(), '-', '_');
  return name == absl::AsciiStrToLower(name) && Fault::Kind_Parse(upper, &out);
}

// Reads one plan; every mistake is noted, and reading goes on.
class Reader {
 public:
  ChaosPlan Read(const YAML::Node& root) {
    if (!IsMap(root, "a plan", {"faults", "settle"})) return {};
    ChaosPlan plan;
    if (const auto settle = root["settle"]) plan.settle = TimeOf(settle, "settle");
    const auto faults = root["faults"];
    if (!faults || !faults.IsSequence() || faults.size() == 0) {
      Wrong(faults ? faults : root, "a plan has a list 'faults' of at least one fault");
      return plan;
    }
    if (faults.size() > kMostFaults)
      Wrong(faults, Cat("a plan has at most ", kMostFaults, " faults, this one has ", faults.size()));
    for (const auto& node : faults) ReadFault(node, plan);
    std::stable_sort(plan.faults.begin(), plan.faults.end(),
                     [](const auto& a, const auto& b) { return a.at < b.at; });
    return plan;
  }
  [[nodiscard]] const std::vector<std::string>& mistakes() const { return mistakes_; }

 private:
  void Wrong(const YAML::Node& node, const std::string& what) {
    mistakes_.push_back(
        Cat("line ", std::max(0, node.Mark().line) + 1, ": ", what));  // an empty file has none
  }

  bool IsMap(const YAML::Node& node, const std::string& what, const std::set<std::string>& known) {
    if (!node.IsMap()) {
      Wrong(node, Cat(what, " is a mapping with ", absl::StrJoin(known, ", ")));
      return false;
    }
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const auto key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (!known.contains(key))
        Wrong(entry.first, Cat(what, " has no '", key, "'; it has ", absl::StrJoin(known, ", ")));
      else if (!seen.insert(key).second)
        Wrong(entry.first, Cat("'", key, "' stands twice in ", what));
    }
    return true;
  }

  std::string TextOf(const YAML::Node& map, const std::string& key) {
    const auto node = map[key];
    if (node && node.IsScalar() && !node.Scalar().empty()) return node.Scalar();
    Wrong(node ? node : map, Cat("a fault needs '", key, "'"));
    return "";
  }

  Duration TimeOf(const YAML::Node& node, const std::string& key) {
    Duration time{};
    if (node.IsScalar() && ParseDuration(node.Scalar(), time) && time >= Duration::zero()) return time;
    Wrong(node, Cat("'", key, "' is a time such as 500ms, 2s or 1m"));
    return {};
  }

  void ReadFault(const YAML::Node& node, ChaosPlan& plan) {
    if (!IsMap(node, "a fault", {"at", "fault", "member", "gpu", "for"})) return;
    PlannedFault planned;
    if (const auto at = node["at"])
      planned.at = TimeOf(at, "at");
    else
      Wrong(node, "a fault needs 'at'");
    planned.fault.set_member(TextOf(node, "member"));
    Fault::Kind kind{};
    const auto name = TextOf(node, "fault");
    if (name.empty()) return;
    if (!KindOf(name, kind))
      return Wrong(node["fault"],
                   Cat("there is no fault '", name, "'; there are ", absl::StrJoin(FaultNames(), ", ")));
    planned.fault.set_kind(kind);
    ReadGpu(node, name, planned.fault);
    ReadLength(node, name, planned.fault);
    plan.faults.push_back(std::move(planned));
  }

  void ReadGpu(const YAML::Node& node, const std::string& name, Fault& fault) {
    const auto gpu = node["gpu"];
    if (!IsOfWorker(fault.kind())) {
      if (gpu) Wrong(gpu, Cat(name, " is of a whole daemon: it has no 'gpu'"));
      return;
    }
    std::uint32_t number = 0;
    if (!gpu || !gpu.IsScalar() || !absl::SimpleAtoi(gpu.Scalar(), &number))
      return Wrong(gpu ? gpu : node, Cat(name, " needs 'gpu', the number of a GPU of its member"));
    fault.set_gpu(number);
  }

  void ReadLength(const YAML::Node& node, const std::string& name, Fault& fault) {
    const auto length = node["for"];
    if (!Lasts(fault.kind())) {
      if (length) Wrong(length, Cat(name, " lasts until it is recovered from: it has no 'for'"));
      return;
    }
    if (!length) return Wrong(node, Cat(name, " needs 'for', how long it lasts"));
    const auto time = TimeOf(length, "for");
    if (time == Duration::zero() || time > kLongest)
      Wrong(length, Cat("'for' is up to ", FormatDuration(kLongest)));
    fault.set_duration_ns(time.count());
  }

  std::vector<std::string> mistakes_;
};

}  // namespace

std::string FaultName(proto::InjectFault::Kind kind) {
  auto name = absl::AsciiStrToLower(Fault::Kind_Name(kind));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string DescribeFault(const proto::InjectFault& fault) {
  auto text = Cat(FaultName(fault.kind()), " at ", fault.member());
  if (IsOfWorker(fault.kind())) Append(&text, "/", fault.gpu());
  if (fault.duration_ns() > 0) Append(&text, " for ", FormatDuration(Duration(fault.duration_ns())));
  return text;
}

absl::StatusOr<ChaosPlan> ParseChaosPlan(const std::string& yaml) {
  Reader reader;
  ChaosPlan plan;
  try {
    plan = reader.Read(LoadOneDocument(yaml));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        Cat("line ", error.mark.line + 1, ": this is not valid YAML: ", error.msg));
  }
  if (!reader.mistakes().empty()) return absl::InvalidArgumentError(absl::StrJoin(reader.mistakes(), "; "));
  return plan;
}

}  // namespace troupe::shell
