#include "sim/cluster_file.hpp"

#include <yaml-cpp/yaml.h>

#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kMostNodes = 1000;
constexpr std::uint32_t kMostGpus = 1000;

class Reader {
 public:
  // Reads one value; what was expected when it is wrong, empty when it is right.
  using Set = std::function<std::string(const YAML::Node&)>;
  using Keys = std::map<std::string, Set>;

  explicit Reader(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] absl::Status Wrong(const YAML::Mark& mark, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ":", mark.is_null() ? 1 : mark.line + 1, ":",
                                                   mark.is_null() ? 1 : mark.column + 1, ": ", what));
  }

  [[nodiscard]] absl::Status Map(const YAML::Node& map, const Keys& keys) const {
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

 private:
  const std::string name_;
};

Reader::Set Count(std::uint32_t& out, std::uint32_t most) {
  return [&out, most](const YAML::Node& value) -> std::string {
    if (value.IsScalar() && absl::SimpleAtoi(value.Scalar(), &out) && out >= 1 && out <= most) return "";
    return absl::StrCat("an integer from 1 to ", most);
  };
}
Reader::Set Size(Bytes& out) {
  return [&out](const YAML::Node& value) -> std::string {
    if (value.IsScalar() && ParseBytes(value.Scalar(), out) && out.count() > 0) return "";
    return "a size such as 8GiB, more than nothing";
  };
}
Reader::Set Span(Duration& out) {
  return [&out](const YAML::Node& value) -> std::string {
    if (value.IsScalar() && ParseDuration(value.Scalar(), out) && out > Duration()) return "";
    return "a time such as 80ms or 1.3s, more than nothing";
  };
}
Reader::Set Text(std::string& out) {
  return [&out](const YAML::Node& value) -> std::string {
    if (!value.IsScalar() || value.Scalar().empty()) return "a name";
    out = value.Scalar();
    return "";
  };
}
Reader::Set Rate(BytesPerSecond& out) {
  return [&out](const YAML::Node& value) -> std::string {
    Bytes bytes;
    if (!value.IsScalar() || !ParseBytes(value.Scalar(), bytes) || bytes.count() == 0)
      return "bytes per second such as 12GB";
    out = BytesPerSecond{static_cast<double>(bytes.count())};
    return "";
  };
}
// What `parse` says is what was expected.
template <class T>
Reader::Set Parsed(T& out, absl::StatusOr<T> (*parse)(const std::string&)) {
  return [&out, parse](const YAML::Node& value) -> std::string {
    auto parsed = parse(value.IsScalar() ? value.Scalar() : std::string());
    if (!parsed.ok()) return std::string(parsed.status().message());
    out = *std::move(parsed);
    return "";
  };
}

absl::StatusOr<node::Topology> ParseTopology(const std::string& text) {
  return node::Topology::Parse(text);
}

absl::Status ReadModels(const Reader& reader, const YAML::Node& list, ClusterSpec& cluster) {
  if (!list.IsSequence() || list.size() == 0)
    return reader.Wrong(list.Mark(), "models: expected a list of at least one '- name: ...'");
  std::map<std::string, int> seen;
  for (const auto& item : list) {
    ModelSpec model;
    TROUPE_RETURN_IF_ERROR(reader.Map(item, {{"name", Text(model.name)},
                                             {"memory", Size(model.memory)},
                                             {"run", Span(model.times.run)},
                                             {"load", Span(model.times.load)},
                                             {"swapped", Span(model.times.swapped)},
                                             {"deadline", Span(model.deadline)}}));
    if (model.name.empty() || model.memory == Bytes() || model.times.run == Duration())
      return reader.Wrong(item.Mark(), "a model needs a name, its memory and its run");
    if (!seen.emplace(model.name, 0).second)
      return reader.Wrong(item.Mark(), absl::StrCat("model '", model.name, "' is there twice"));
    if (model.memory > cluster.gpu_memory)
      return reader.Wrong(item.Mark(),
                          absl::StrCat("model '", model.name, "' takes ", FormatBytes(model.memory),
                                       ", more than a GPU has (", FormatBytes(cluster.gpu_memory), ")"));
    cluster.models.push_back(std::move(model));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClusterSpec> ParseCluster(std::string_view text, const std::string& name) {
  const Reader reader(name);
  ClusterSpec cluster;
  YAML::Node root;
  try {
    root = YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    return reader.Wrong(error.mark, absl::StrCat("this is no YAML: ", error.msg));
  }
  YAML::Node models;
  TROUPE_RETURN_IF_ERROR(reader.Map(root, {{"nodes", Count(cluster.nodes, kMostNodes)},
                                           {"gpus", Count(cluster.gpus, kMostGpus)},
                                           {"gpu-memory", Size(cluster.gpu_memory)},
                                           {"host-memory", Size(cluster.host_memory)},
                                           {"loads", Parsed(cluster.loads, ParseLoadMode)},
                                           {"link", Rate(cluster.link)},
                                           {"topology", Parsed(cluster.topology, ParseTopology)},
                                           {"timeout", Span(cluster.timeout)},
                                           {"models", [&models](const YAML::Node& value) {
                                              models.reset(value);
                                              return std::string();
                                            }}}));
  if (const auto status = cluster.topology.Check(cluster.gpus); !status.ok())
    return reader.Wrong(root["topology"].Mark(), std::string(status.message()));
  if (!root["models"]) return reader.Wrong(root.Mark(), "expected a list 'models:'");
  TROUPE_RETURN_IF_ERROR(ReadModels(reader, models, cluster));
  return cluster;
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
