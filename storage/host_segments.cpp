#include "storage/host_segments.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::storage {
namespace {

// The name under which the kernel shows the memory in /proc; at most 249 bytes.
std::string NameOf(const std::string& node, const std::string& key) {
  return absl::StrCat("troupe-host ", node.substr(0, 64), " ", key.substr(0, 160));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostSegments>> HostSegments::Create(Options options) {
  std::unique_ptr<HostSegments> segments(new HostSegments(std::move(options)));
  TROUPE_ASSIGN_OR_RETURN(segments->empty_region_,
                          transport::HostRegion::Create(NameOf(segments->options_.name, "no-key"),
                                                        {.size = transport::HostRegion::kAlignment}));
  // Whether the memory is there is better known now than at the first deployment.
  if (!segments->options_.isolated) TROUPE_RETURN_IF_ERROR(segments->At("").status());
  return segments;
}

absl::StatusOr<HostSegments::Segment*> HostSegments::At(const std::string& key) {
  const auto it = segments_.find(key);
  if (it != segments_.end()) return &it->second;
  const bool fixed = key.empty() && !options_.isolated;
  transport::HostRegion::Options options{.size = options_.budget,
                                         .huge_pages = fixed && options_.huge_pages,
                                         .gives_back = !fixed,
                                         .readers_register = options_.registered};
  TROUPE_ASSIGN_OR_RETURN(
      RegionPtr region,
      transport::HostRegion::Create(NameOf(options_.name, key.empty() ? "shared" : key), options));
  Segment& segment = segments_[key];
  segment.models = std::make_unique<HostRepository>(region);
  segment.region = std::move(region);
  return &segment;
}

absl::StatusOr<HostRepository::Reservation> HostSegments::Reserve(const std::string& key,
                                                                  const std::string& digest, Bytes model,
                                                                  Bytes weights) {
  TROUPE_ASSIGN_OR_RETURN(Segment * segment, At(key));
  Bytes used;
  for (const auto& [name, other] : segments_) used += other.region->used();
  const Bytes left = used < options_.budget ? options_.budget - used : Bytes();
  const Bytes need =
      AlignUp(model, transport::HostRegion::kAlignment) + AlignUp(weights, transport::HostRegion::kAlignment);
  if (segments_.size() > 1 && !segment->models->Has(digest) && need > left) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for ", FormatBytes(need), " in the host regions: ", FormatBytes(used), " of ",
                     FormatBytes(options_.budget), " are used, by ", segments_.size(), " isolation keys"));
  }
  return segment->models->Reserve(digest, model, weights);
}

HostRepository* HostSegments::Find(const std::string& key) {
  const auto it = segments_.find(key);
  return it == segments_.end() ? nullptr : it->second.models.get();
}

absl::StatusOr<HostSegments::RegionPtr> HostSegments::RegionOf(const std::string& key) {
  TROUPE_ASSIGN_OR_RETURN(Segment * segment, At(key));
  return segment->region;
}

std::vector<HostSegments::RegionPtr> HostSegments::Regions() const {
  std::vector<RegionPtr> regions;
  for (const auto& [key, segment] : segments_) regions.push_back(segment.region);
  return regions;
}

void HostSegments::GiveBack(const std::vector<RegionPtr>& regions) {
  for (const RegionPtr& region : regions) region->GiveBack();
}

void HostSegments::DropEmpty() {
  std::erase_if(segments_, [this](const auto& entry) {
    const auto& [key, segment] = entry;
    if (key.empty() && !options_.isolated) return false;
    // Only its repository and this object hold it: no process maps it, or is about to.
    return segment.models->usage().models == 0 && segment.region.use_count() == 2;
  });
}

HostRepository::Usage HostSegments::usage() const {
  HostRepository::Usage sum;
  sum.capacity = options_.budget;
  for (const auto& [key, segment] : segments_) {
    const HostRepository::Usage usage = segment.models->usage();
    sum.used += usage.used;
    sum.in_use += usage.in_use;
    sum.models += usage.models;
    sum.evictions += usage.evictions;
    if (segments_.size() == 1) sum.capacity = usage.capacity;
  }
  return sum;
}

bool HostSegments::huge_pages() const {
  const auto it = segments_.find("");
  return it != segments_.end() && it->second.region->huge_pages();
}

}  // namespace troupe::storage
