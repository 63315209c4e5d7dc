#include "cluster/ownership/function_loads.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

namespace {

// That runs can have had GPUs, or requests waited for swaps, between two heartbeats: a thousand for ten seconds.
constexpr Duration kLongest = std::chrono::seconds(10'000);

}  // namespace

void FunctionLoads::Hear(const proto::Heartbeat& heartbeat, const std::set<FunctionVersion>& scaled,
                         Time now) {
  Waiting waiting{.heard = now};
  for (const auto& told : heartbeat.function_demand()) {
    const FunctionVersion function = VersionOf(told.key());
    if (!scaled.contains(function)) continue;
    Load& load = since_[function];
    load.arrived = std::min(load.arrived + std::min(told.arrived(), kMost), kMost);
    load.served = std::min(load.served + std::min(told.served(), kMost), kMost);
    load.gpu_time += std::clamp(Duration(told.gpu_ns()), Duration(), kLongest);
    load.ended = std::min(load.ended + std::min(told.ended(), kMost), kMost);
    load.late = std::min(load.late + std::min(told.late(), told.ended()), load.ended);
    load.swapping += std::clamp(Duration(told.swap_ns()), Duration(), kLongest);
    if (told.waiting() > 0) waiting.requests[function] = std::min(told.waiting(), kMost);
  }
  if (waiting.requests.empty()) {
    waiting_.erase(heartbeat.name());
  } else {
    waiting_[heartbeat.name()] = std::move(waiting);
  }
}

std::vector<FunctionVersion> FunctionLoads::Told() const {
  std::vector<FunctionVersion> told;
  for (const auto& [function, load] : since_) told.push_back(function);
  for (const auto& [gateway, waiting] : waiting_)
    for (const auto& [function, requests] : waiting.requests) told.push_back(function);
  return told;
}

std::map<FunctionVersion, FunctionLoads::Load> FunctionLoads::Take(Time now) {
  auto loads = std::exchange(since_, {});
  std::erase_if(waiting_, [&](const auto& gateway) { return now - gateway.second.heard > kFresh; });
  for (const auto& [gateway, waiting] : waiting_)
    for (const auto& [function, requests] : waiting.requests) loads[function].waiting += requests;
  return loads;
}

}  // namespace troupe::cluster
