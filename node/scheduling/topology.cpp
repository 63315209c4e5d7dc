#include "node/scheduling/topology.hpp"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.hpp"

namespace troupe::node {

namespace {

constexpr GpuIndex kLargestGpu = 1023;
constexpr std::string_view kV100x4 =
    "switch:0-1,switch:2-3,link:0-1=25GB,link:0-2=25GB,link:0-3=50GB,link:1-2=50GB,link:1-3=25GB,link:2-3="
    "50GB";

absl::Status Wrong(const std::string& item, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("topology: '", item, "': ", what));
}

absl::StatusOr<std::vector<GpuIndex>> Gpus(const std::string& text) {
  std::vector<GpuIndex> gpus;
  for (const absl::string_view piece : absl::StrSplit(text, '-')) {
    GpuIndex gpu = 0;
    if (!absl::SimpleAtoi(piece, &gpu) || gpu > kLargestGpu) {
      return Wrong(text, "expected the numbers of GPUs with '-' between them, such as 0-1");
    }
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) return Wrong(text, "names a GPU twice");
    gpus.push_back(gpu);
  }
  if (gpus.size() < 2) return Wrong(text, "expected at least two GPUs, such as 0-1");
  return gpus;
}

}  // namespace

absl::StatusOr<Topology> Topology::Parse(std::string_view text) {
  Topology topology;
  const std::string items(text == "v100x4" ? kV100x4 : text);
  for (const absl::string_view piece : absl::StrSplit(items, ',', absl::SkipWhitespace())) {
    absl::string_view item = absl::StripAsciiWhitespace(piece);
    if (item == "none") continue;
    const bool is_switch = absl::ConsumePrefix(&item, "switch:");
    if (!is_switch && !absl::ConsumePrefix(&item, "link:")) {
      return Wrong(std::string(item), "expected switch:0-1, link:0-1=25GB, or v100x4 or none alone");
    }
    TROUPE_RETURN_IF_ERROR(is_switch ? topology.AddSwitch(std::string(item))
                                     : topology.AddLink(std::string(item)));
  }
  return topology;
}

absl::Status Topology::AddSwitch(const std::string& text) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<GpuIndex> gpus, Gpus(text));
  for (const GpuIndex gpu : gpus) {
    if (!switches_.emplace(gpu, next_switch_).second) {
      return Wrong(text, absl::StrCat("GPU ", gpu, " is behind another switch already"));
    }
  }
  ++next_switch_;
  return absl::OkStatus();
}

absl::Status Topology::AddLink(const std::string& text) {
  const std::vector<std::string> halves = absl::StrSplit(text, '=');
  Bytes speed;
  if (halves.size() != 2 || !ParseBytes(halves[1], speed) || speed == Bytes()) {
    return Wrong(text, "expected two GPUs and bytes per second, such as 0-1=25GB");
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<GpuIndex> gpus, Gpus(halves[0]));
  if (gpus.size() != 2) return Wrong(text, "a link has two ends");
  const BytesPerSecond rate{static_cast<double>(speed.count())};
  if (!links_.emplace(std::minmax(gpus[0], gpus[1]), rate).second) {
    return Wrong(text, "these two have a link already; give its whole speed once");
  }
  return absl::OkStatus();
}

absl::Status Topology::Check(std::uint32_t gpus) const {
  GpuIndex largest = 0;
  for (const auto& [gpu, index] : switches_) largest = std::max(largest, gpu);
  for (const auto& [ends, speed] : links_) largest = std::max(largest, ends.second);
  if (empty() || largest < gpus) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("topology: GPU ", largest, " is named, and this node has ", gpus,
                   " of them, counted from 0; correct the topology or the number of GPUs"));
}

bool Topology::ShareSwitch(GpuIndex a, GpuIndex b) const {
  const auto first = switches_.find(a);
  const auto second = switches_.find(b);
  return a != b && first != switches_.end() && second != switches_.end() && first->second == second->second;
}

std::vector<std::vector<GpuIndex>> Topology::Switches() const {
  std::vector<std::vector<GpuIndex>> switches(next_switch_);
  for (const auto& [gpu, index] : switches_) switches[index].push_back(gpu);
  return switches;
}

std::vector<Topology::Link> Topology::PeerLinks() const {
  std::vector<Link> links;
  for (const auto& [ends, speed] : links_) links.push_back({ends.first, ends.second, speed});
  return links;
}

std::optional<BytesPerSecond> Topology::PeerLink(GpuIndex a, GpuIndex b) const {
  const auto link = links_.find(std::minmax(a, b));
  return link == links_.end() ? std::nullopt : std::optional(link->second);
}

}  // namespace troupe::node
