// Whom the runtimes of the table serve.
#include <algorithm>

#include "node/scheduling/gpu_table.hpp"

namespace troupe::node {

bool GpuTable::Served(const std::string& key, std::optional<std::uint32_t> device) const {
  return std::any_of(gpus_.begin(), gpus_.end(), [&](const auto& entry) {
    const Gpu& gpu = entry.second;
    return gpu.worker == WorkerState::kReady && gpu.assigned && gpu.key == key &&
           (!device || gpu.device == *device);
  });
}

bool GpuTable::Coming(const std::string& key) const {
  return std::any_of(gpus_.begin(), gpus_.end(), [&](const auto& gpu) { return gpu.second.coming == key; });
}

bool GpuTable::Starting() const {
  return std::any_of(gpus_.begin(), gpus_.end(), [](const auto& gpu) {
    return gpu.second.worker == WorkerState::kAbsent && !gpu.second.coming;
  });
}

bool GpuTable::Takeable(const Gpu& gpu) const {
  return gpu.worker == WorkerState::kReady && gpu.in_flight == 0 && gpu.evicting.empty() && gpu.unread == 0 &&
         std::all_of(gpu.residents.begin(), gpu.residents.end(),
                     [](const auto& resident) { return resident.second.Idle(); });
}

}  // namespace troupe::node
