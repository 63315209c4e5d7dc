#include "node/models/swap_log.hpp"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/wire_status.hpp"

namespace troupe::node {

const char* Name(ModelWas was) {
  switch (was) {
    case ModelWas::kResident:
      return "resident";
    case ModelWas::kLoading:
      return "loading";
    case ModelWas::kHost:
      return "host";
    case ModelWas::kPeer:
      return "peer";
    case ModelWas::kDisk:
      return "disk";
    case ModelWas::kBroadcast:
      return "broadcast";
    case ModelWas::kAhead:
      return "ahead";
  }
  return "unknown";
}

const char* Name(EvictedAs reason) {
  switch (reason) {
    case EvictedAs::kForgotten:
      return "forgotten";
    case EvictedAs::kHeavy:
      return "heavy";
    case EvictedAs::kLight:
      return "light";
    case EvictedAs::kReplicated:
      return "replicated";
  }
  return "unknown";
}

std::string SwapText(std::uint32_t gpu, const SwapDone& swap,
                     const std::function<std::string(const std::string&)>& functions) {
  auto text =
      absl::StrCat("GPU ", gpu, ": ", functions(swap.model), " from ",
                   swap.source == ModelWas::kPeer        ? absl::StrCat("GPU ", swap.peer)
                   : swap.source == ModelWas::kBroadcast ? absl::StrCat("GPU ", swap.peer, ", as it came")
                   : swap.source == ModelWas::kAhead     ? "host ahead of requests"
                                                         : Name(swap.source));
  if (swap.status.ok()) {
    absl::StrAppend(&text, ", ", FormatBytes(swap.bytes), " in ", FormatDuration(swap.took));
  } else {
    absl::StrAppend(&text, ": ", swap.status.message());
  }
  if (swap.evicted.empty()) return text;
  const auto words = [&](std::string* out, const std::string& model) { *out += functions(model); };
  return absl::StrCat(text, "; ", absl::StrJoin(swap.evicted, ", ", words), " went for it");
}

void SwapLog::Swapped(std::uint32_t gpu, SwapDone swap) {
  if (swap.status.ok()) {
    ++swaps_;
    bytes_ += swap.bytes;
    took_ += swap.took;
    const double seconds = std::chrono::duration<double>(swap.took).count();
    for (std::size_t i = 0; i < kBounds.size(); ++i) below_[i] += seconds <= kBounds[i] ? 1 : 0;
  } else {
    ++failed_;
  }
  auto& latest = latest_[gpu];
  latest.push_front(std::move(swap));
  if (latest.size() > kLatest) latest.pop_back();
}

void SwapLog::AddTo(proto::SwapStatistics& statistics) const {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    auto& source = *statistics.add_sources();
    source.set_source(Name(static_cast<ModelWas>(i)));
    source.set_requests(sources_[i]);
  }
  for (std::size_t i = 0; i < evictions_.size(); ++i) {
    if (evictions_[i] == 0) continue;
    auto& evictions = *statistics.add_evictions();
    evictions.set_reason(Name(static_cast<EvictedAs>(i)));
    evictions.set_count(evictions_[i]);
  }
  statistics.set_swaps(swaps_);
  statistics.set_failed(failed_);
  statistics.set_bytes(bytes_.count());
  statistics.set_swap_ns(took_.count());
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    statistics.add_bounds(kBounds[i]);
    statistics.add_seconds_le(below_[i]);
  }
}

std::vector<proto::SwapRecord> SwapLog::Latest(std::uint32_t gpu, Time now) const {
  std::vector<proto::SwapRecord> records;
  const auto it = latest_.find(gpu);
  if (it == latest_.end()) return records;
  for (const auto& swap : it->second) {
    auto& record = records.emplace_back();
    record.set_digest(swap.model);
    const bool from_gpu = swap.source == ModelWas::kPeer || swap.source == ModelWas::kBroadcast;
    record.set_source(from_gpu ? Name(swap.source) : "host");
    record.set_bytes(swap.bytes.count());
    record.set_took_ns(swap.took.count());
    record.set_age_ns((now - swap.ended).count());
    for (const auto& evicted : swap.evicted) record.add_evicted(evicted);
    SetStatus(swap.status, record);
  }
  return records;
}

}  // namespace troupe::node
