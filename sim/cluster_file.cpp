#include "sim/cluster_file.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "sim/yaml_reader.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kMostNodes = 1000;
constexpr std::uint32_t kMostGpus = 1000;

absl::StatusOr<node::Topology> ParseTopology(const std::string& text) {
  return node::Topology::Parse(text);
}

YamlReader::Set ReadFactor(double& out) {
  return [&out](const YAML::Node& value) -> std::string {
    if (value.IsScalar() && absl::SimpleAtod(value.Scalar(), &out) && out > 0 && out <= 1000) return "";
    return "a factor above zero, such as 1.0";
  };
}

absl::Status ReadKinds(const YamlReader& reader, const YAML::Node& list, ClusterSpec& cluster) {
  if (!list.IsSequence() || list.size() == 0)
    return reader.Wrong(list.Mark(), "gpu-kinds: expected a list of at least one '- name: ...'");
  std::uint32_t gpus = 0;
  for (const auto& item : list) {
    GpuKind kind;
    TROUPE_RETURN_IF_ERROR(reader.Map(item, {{"name", ReadWord(kind.name)},
                                             {"count", ReadCount(kind.count, kMostGpus)},
                                             {"memory", ReadSize(kind.memory)},
                                             {"link", ReadRate(kind.link)},
                                             {"speed", ReadFactor(kind.speed)}}));
    if (kind.name.empty() || kind.memory == Bytes())
      return reader.Wrong(item.Mark(), "a kind of GPU needs a name and its memory");
    gpus += kind.count;
    if (gpus > kMostGpus)
      return reader.Wrong(item.Mark(), absl::StrCat("a node has at most ", kMostGpus, " GPUs"));
    cluster.kinds.push_back(std::move(kind));
  }
  cluster.gpus = gpus;
  return absl::OkStatus();
}

absl::Status ReadModels(const YamlReader& reader, const YAML::Node& list, ClusterSpec& cluster) {
  if (!list.IsSequence() || list.size() == 0)
    return reader.Wrong(list.Mark(), "models: expected a list of at least one '- name: ...'");
  std::map<std::string, int> seen;
  for (const auto& item : list) {
    ModelSpec model;
    TROUPE_RETURN_IF_ERROR(reader.Map(item, {{"name", ReadWord(model.name)},
                                             {"memory", ReadSize(model.memory)},
                                             {"run", ReadSpan(model.times.run)},
                                             {"load", ReadSpan(model.times.load)},
                                             {"swapped", ReadSpan(model.times.swapped)},
                                             {"deadline", ReadSpan(model.deadline)},
                                             {"activations", ReadSize(model.activations)},
                                             {"runtime-memory", ReadSize(model.runtime.footprint)},
                                             {"cold-start", ReadSpan(model.runtime.cold_start)},
                                             {"runtime-run", ReadSpan(model.runtime.run)}}));
    if (model.name.empty() || model.memory == Bytes() || model.times.run == Duration())
      return reader.Wrong(item.Mark(), "a model needs a name, its memory and its run");
    if (!seen.emplace(model.name, 0).second)
      return reader.Wrong(item.Mark(), absl::StrCat("model '", model.name, "' is there twice"));
    if (const Bytes most = cluster.LargestMemory(); std::max(model.memory, model.runtime.footprint) > most)
      return reader.Wrong(item.Mark(),
                          absl::StrCat("model '", model.name, "' takes ",
                                       FormatBytes(std::max(model.memory, model.runtime.footprint)),
                                       ", more than a GPU has (", FormatBytes(most), ")"));
    cluster.models.push_back(std::move(model));
  }
  return absl::OkStatus();
}

absl::Status ReadNetwork(const YamlReader& reader, const YAML::Node& map, NetworkOptions& network) {
  return reader.Map(map, {{"delay", ReadSpan(network.delay)},
                          {"jitter", ReadSpan(network.jitter)},
                          {"connection-timeout", ReadSpan(network.connection_timeout)},
                          {"reconnect", ReadSpan(network.reconnect)}});
}

absl::StatusOr<gpu::LinkSharing> ParseSharing(const std::string& name) {
  return gpu::FindLinkSharing(name);
}

}  // namespace

absl::StatusOr<ClusterSpec> ParseCluster(std::string_view text, const std::string& name) {
  const YamlReader reader(name);
  ClusterSpec cluster;
  cluster.link_sharing = gpu::LinkSharing::kDeadline;
  TROUPE_ASSIGN_OR_RETURN(const YAML::Node root, reader.Load(std::string(text)));
  const auto later = [](const YAML::Node&) { return std::string(); };
  TROUPE_RETURN_IF_ERROR(reader.Map(root, {{"nodes", ReadCount(cluster.nodes, kMostNodes)},
                                           {"gpus", ReadCount(cluster.gpus, kMostGpus)},
                                           {"gpu-memory", ReadSize(cluster.gpu_memory)},
                                           {"host-memory", ReadSize(cluster.host_memory)},
                                           {"loads", ReadParsed(cluster.loads, ParseLoadMode)},
                                           {"link", ReadRate(cluster.link)},
                                           {"topology", ReadParsed(cluster.topology, ParseTopology)},
                                           {"link-sharing", ReadParsed(cluster.link_sharing, ParseSharing)},
                                           {"timeout", ReadSpan(cluster.timeout)},
                                           {"host-copies", ReadCount(cluster.host_copies, kMostNodes)},
                                           {"gateways", ReadCount(cluster.gateways, kMostNodes)},
                                           {"gpu-kinds", later},
                                           {"network", later},
                                           {"models", later}}));
  if (cluster.link_sharing == gpu::LinkSharing::kDeadline) cluster.run_turns = Turns::kDeadline;
  if (root["gpu-kinds"] && (root["gpus"] || root["gpu-memory"]))
    return reader.Wrong(root["gpu-kinds"].Mark(), "expected either gpu-kinds, or gpus and gpu-memory");
  if (root["gpu-kinds"]) TROUPE_RETURN_IF_ERROR(ReadKinds(reader, root["gpu-kinds"], cluster));
  if (const auto status = cluster.topology.Check(cluster.gpus); !status.ok())
    return reader.Wrong(root["topology"].Mark(), std::string(status.message()));
  if (root["network"])
    TROUPE_RETURN_IF_ERROR(ReadNetwork(reader, root["network"], cluster.network.emplace()));
  if (!root["models"]) return reader.Wrong(root.Mark(), "expected a list 'models:'");
  TROUPE_RETURN_IF_ERROR(ReadModels(reader, root["models"], cluster));
  return cluster;
}

bool BringsRuntimes(std::string_view preset) {
  return preset == "native" || preset == "infless-ka";
}

GpuKind ClusterSpec::KindOf(std::uint32_t node, std::uint32_t gpu) const {
  const bool by_turn = kinds_are == KindsAre::kInNodesByTurn && !kinds.empty();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (by_turn ? node % kinds.size() == i : gpu < kinds[i].count) {
      GpuKind found = kinds[i];
      if (found.link == BytesPerSecond{}) found.link = link;
      return found;
    }
    if (!by_turn) gpu -= kinds[i].count;
  }
  return {.name = "gpu", .count = gpus, .memory = gpu_memory, .link = link};
}

Bytes ClusterSpec::LargestMemory() const {
  Bytes most = kinds.empty() ? gpu_memory : Bytes();
  for (const GpuKind& kind : kinds) most = std::max(most, kind.memory);
  return most;
}

absl::StatusOr<ClusterSpec> ReadCluster(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no cluster file ", path, " that can be read"));
  std::ostringstream text;
  text << file.rdbuf();
  return ParseCluster(text.str(), path);
}

absl::StatusOr<std::vector<std::size_t>> AssignModels(const ClusterSpec& cluster,
                                                      const std::vector<TraceFunction>& functions) {
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < cluster.models.size(); ++i) by_name[cluster.models[i].name] = i;
  std::vector<std::size_t> out;
  for (const TraceFunction& function : functions) {
    if (function.model.empty()) {
      out.push_back(out.size() % cluster.models.size());
      continue;
    }
    const auto it = by_name.find(function.model);
    if (it == by_name.end())
      return absl::InvalidArgumentError(absl::StrCat(
          "function '", function.name, "' of the trace has model '", function.model,
          "', expected one of the cluster file's: ",
          absl::StrJoin(by_name, ", ", [](auto* out_text, const auto& m) { out_text->append(m.first); })));
    out.push_back(it->second);
  }
  return out;
}

}  // namespace troupe::sim
