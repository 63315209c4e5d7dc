#include "sim/checkers/ownership_check.hpp"

#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "cluster/function_sharing.hpp"
#include "cluster/ownership/scaled_record.hpp"
#include "proto/gpu_instances.hpp"
#include "proto/gpu_sharing.hpp"

namespace troupe::sim {

namespace {

// Node, GPU, function.
using Part = std::tuple<std::string, std::uint32_t, std::string>;

std::string NameOf(const Part& part) {
  return absl::StrCat("function '", std::get<2>(part), "' on ", std::get<0>(part), " GPU ",
                      std::get<1>(part));
}

bool Overlap(const proto::GpuPlace& a, const proto::GpuPlace& b) {
  return a.left() < b.left() + b.quota() && b.left() < a.left() + a.quota() &&
         a.bottom() < b.bottom() + b.sms() && b.bottom() < a.bottom() + a.sms();
}

// Of a function whose instances follow its load the quotas may differ, and the request is their mean, rounded up.
bool IsOfItsSize(const proto::FunctionRecord& function, const proto::GpuPlace& place) {
  const auto& sharing = function.sharing();
  if (place.sms() != proto::SmPercentOf(sharing)) return false;
  if (!proto::IsScaled(sharing)) return place.quota() == sharing.quota_request();
  std::uint32_t sum = 0;
  for (const auto& each : function.places()) sum += each.quota();
  const auto count = static_cast<std::uint32_t>(function.places_size());
  const std::uint32_t limit = sharing.quota_limit() == 0 ? 100 : sharing.quota_limit();
  return place.quota() > 0 && place.quota() <= limit && sharing.quota_request() == (sum + count - 1) / count;
}

std::uint32_t MostInstances(const proto::GpuSharing& sharing) {
  if (proto::IsScaled(sharing) && sharing.max_instances() == 0) return cluster::kMostScaledInstances;
  return proto::InstancesOf(sharing, 1);
}

void CheckPlaces(const proto::FunctionRecord& function, const std::set<std::string>& nodes,
                 std::vector<std::string>& lines) {
  if (function.places_size() > static_cast<int>(MostInstances(function.sharing())))
    lines.push_back(absl::StrCat("function '", function.key().name(), "' has ", function.places_size(),
                                 " parts of GPUs, more than instances"));
  for (const auto& place : function.places()) {
    const auto name = NameOf({place.node(), place.gpu(), function.key().name()});
    if (!nodes.contains(place.node())) lines.push_back(absl::StrCat(name, ": the node is not there"));
    if (!IsOfItsSize(function, place))
      lines.push_back(absl::StrCat(name, ": its part is not of the size that it requests"));
    if (place.left() + place.quota() > 100 || place.bottom() + place.sms() > 100)
      lines.push_back(absl::StrCat(name, ": its part reaches beyond the GPU"));
  }
}

}  // namespace

std::vector<std::string> CheckOwnership(const std::vector<proto::FunctionRecord>& functions,
                                        const std::vector<proto::NodeDescription>& nodes) {
  std::vector<std::string> lines;
  std::set<std::string> there;
  std::map<Part, std::uint32_t> obeyed, listed;
  for (const auto& node : nodes) {
    there.insert(node.node());
    for (const auto& owned : node.owned())
      obeyed[{node.node(), owned.gpu(), owned.function()}] += owned.instances();
  }
  std::map<std::pair<std::string, std::uint32_t>, std::vector<proto::GpuPlace>> by_gpu;
  for (const auto& function : functions) {
    CheckPlaces(function, there, lines);
    for (const auto& place : function.places()) {
      ++listed[{place.node(), place.gpu(), function.key().name()}];
      auto& others = by_gpu[{place.node(), place.gpu()}];
      for (const auto& other : others)
        if (Overlap(place, other))
          lines.push_back(absl::StrCat("two parts of ", place.node(), " GPU ", place.gpu(), " overlap"));
      others.push_back(place);
    }
  }
  for (const auto& [part, instances] : listed)
    if (const auto it = obeyed.find(part); it == obeyed.end() || it->second != instances)
      lines.push_back(absl::StrCat(NameOf(part), " owns ", instances, " parts, and the node obeys ",
                                   it == obeyed.end() ? 0 : it->second));
  for (const auto& [part, instances] : obeyed)
    if (!listed.contains(part))
      lines.push_back(absl::StrCat(NameOf(part), " owns nothing, and the node obeys ", instances));
  return lines;
}

}  // namespace troupe::sim
