#include "sim/faults.hpp"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/network.hpp"
#include "sim/yaml_reader.hpp"

namespace troupe::sim {

namespace {

std::set<std::string> MembersOf(const ClusterSpec& cluster) {
  std::set<std::string> members = {"manager", "gateway-1"};
  for (std::uint32_t i = 1; i <= cluster.nodes; ++i) members.insert(absl::StrCat("node-", i));
  return members;
}

YamlReader::Set ReadPair(Fault& fault, Fault::Kind kind, const std::set<std::string>& members) {
  return [&fault, &members, kind](const YAML::Node& value) -> std::string {
    const bool two = value.IsSequence() && value.size() == 2 && value[0].IsScalar() && value[1].IsScalar();
    fault.kind = kind;
    if (two) {
      fault.from = value[0].Scalar();
      fault.to = value[1].Scalar();
    }
    if (two && fault.from != fault.to && members.contains(fault.from) && members.contains(fault.to))
      return "";
    return absl::StrCat(
        "two of the cluster's members, such as [gateway-1, node-1]; they are manager, "
        "gateway-1 and node-1 to node-",
        members.size() - 2);
  };
}

}  // namespace

absl::StatusOr<std::vector<Fault>> ParseFaults(std::string_view text, const std::string& name,
                                               const ClusterSpec& cluster) {
  const YamlReader reader(name);
  TROUPE_ASSIGN_OR_RETURN(const YAML::Node root, reader.Load(std::string(text)));
  if (!root.IsSequence())
    return reader.Wrong(root.Mark(), "expected a list of '- {at: 5s, partition: [A, B], for: 3s}'");
  const auto members = MembersOf(cluster);
  std::vector<Fault> faults;
  for (const auto& item : root) {
    Fault fault;
    TROUPE_RETURN_IF_ERROR(reader.Map(item, {{"at", ReadSpan(fault.at)},
                                             {"partition", ReadPair(fault, Fault::Kind::kPartition, members)},
                                             {"cut", ReadPair(fault, Fault::Kind::kCut, members)},
                                             {"for", ReadSpan(fault.length)},
                                             {"one-way", ReadFlag(fault.one_way)}}));
    const bool both = item["partition"] && item["cut"];
    if (fault.at == Duration() || fault.from.empty() || both)
      return reader.Wrong(item.Mark(), "a fault needs a time 'at', and either 'partition' or 'cut'");
    if (fault.kind == Fault::Kind::kPartition && fault.length == Duration())
      return reader.Wrong(item.Mark(), "a partition needs its length, 'for'");
    if (fault.kind == Fault::Kind::kCut && (fault.length > Duration() || fault.one_way))
      return reader.Wrong(item.Mark(), "a cut has no length and no direction");
    faults.push_back(std::move(fault));
  }
  return faults;
}

absl::StatusOr<std::vector<Fault>> ReadFaults(const std::string& path, const ClusterSpec& cluster) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return absl::NotFoundError(absl::StrCat("there is no file of faults ", path, " that can be read"));
  std::ostringstream text;
  text << file.rdbuf();
  return ParseFaults(text.str(), path, cluster);
}

std::vector<FaultStep> StepsOf(const std::vector<Fault>& faults) {
  std::vector<FaultStep> steps;
  for (const Fault& fault : faults) {
    steps.push_back({fault.at, fault, false});
    if (fault.kind == Fault::Kind::kPartition) steps.push_back({fault.at + fault.length, fault, true});
  }
  std::ranges::stable_sort(steps, {}, &FaultStep::at);
  return steps;
}

void Apply(const FaultStep& step, Network& network) {
  const Fault& fault = step.fault;
  if (fault.kind == Fault::Kind::kCut) {
    network.Cut(fault.from, fault.to);
  } else if (step.ends) {
    network.Heal(fault.from, fault.to, fault.one_way);
  } else {
    network.Partition(fault.from, fault.to, fault.one_way);
  }
}

}  // namespace troupe::sim
