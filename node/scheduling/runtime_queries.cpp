#include "node/scheduling/runtime_queries.hpp"

#include <algorithm>

namespace troupe::node {

bool Served(const GpuMap& gpus, const std::string& key, std::optional<std::uint32_t> device) {
  return std::any_of(gpus.begin(), gpus.end(), [&](const auto& entry) {
    const Gpu& gpu = entry.second;
    return gpu.worker == WorkerState::kReady && gpu.assigned && gpu.key == key &&
           (!device || gpu.device == *device);
  });
}

bool Coming(const GpuMap& gpus, const std::string& key) {
  return std::any_of(gpus.begin(), gpus.end(), [&](const auto& gpu) { return gpu.second.coming == key; });
}

bool ComingOn(const GpuMap& gpus, std::uint32_t device) {
  return std::any_of(gpus.begin(), gpus.end(), [device](const auto& entry) {
    const Gpu& gpu = entry.second;
    return gpu.device == device && gpu.worker == WorkerState::kAbsent && gpu.coming;
  });
}

Time LatestStart(const GpuMap& gpus, std::uint32_t device) {
  Time latest{};
  for (const auto& [index, gpu] : gpus)
    if (gpu.device == device) latest = std::max(latest, gpu.ready_since);
  return latest;
}

bool Starting(const GpuMap& gpus) {
  return std::any_of(gpus.begin(), gpus.end(), [](const auto& gpu) {
    return gpu.second.worker == WorkerState::kAbsent && !gpu.second.coming;
  });
}

bool Takeable(const Gpu& gpu) {
  return gpu.unread == 0 && TakeableWithLoss(gpu);
}

bool TakeableWithLoss(const Gpu& gpu) {
  const bool may_lose_states = gpu.found_states && gpu.strange > Bytes();  // its orphans leave by themselves
  return gpu.worker == WorkerState::kReady && gpu.in_flight == 0 && gpu.evicting.empty() &&
         !may_lose_states &&
         std::all_of(gpu.residents.begin(), gpu.residents.end(),
                     [](const auto& resident) { return resident.second.Idle(); });
}

std::vector<ModelId> WithStates(const Gpu& gpu) {
  std::vector<ModelId> models;
  for (const auto& [model, resident] : gpu.residents) {
    if (gpu.found_states || !resident.states.empty()) models.push_back(model);
  }
  return models;
}

bool AllUnfit(const GpuMap& gpus) {
  return std::all_of(gpus.begin(), gpus.end(),
                     [](const auto& entry) { return entry.second.worker == WorkerState::kUnfit; });
}

Bytes LargestMemory(const GpuMap& gpus) {
  Bytes largest;
  for (const auto& [index, gpu] : gpus) {
    if (gpu.worker != WorkerState::kUnfit) largest = std::max(largest, gpu.memory);
  }
  return largest;
}

}  // namespace troupe::node
