#include "cluster/rectangles/layout.hpp"

#include <algorithm>

namespace troupe::cluster {

const GpuRectangles& Layout::At(const std::string& gpu) const {
  const auto it = changed_.find(gpu);
  return it == changed_.end() ? gpus_.get().at(gpu) : it->second;
}

GpuRectangles& Layout::Edit(const std::string& gpu) {
  return changed_.try_emplace(gpu, gpus_.get().at(gpu)).first->second;
}

bool Layout::SpreadAllows(const InstanceRequest& request, const std::string& gpu) const {
  if (request.spread == Spread::kAnywhere) return true;
  const std::string& node = At(gpu).gpu().node;
  return std::ranges::none_of(gpus_.get(), [&](const auto& entry) {
    return entry.second.gpu().node == node && At(entry.first).HasFunction(request.function);
  });
}

std::vector<Move> Layout::Moves() const {
  std::map<InstanceId, std::pair<std::string, Rectangle>> before;
  for (const auto& [name, gpu] : changed_)
    for (const auto& [id, booking] : gpus_.get().at(name).bookings()) before[id] = {name, booking.place};
  std::vector<Move> moves;
  for (const auto& [name, gpu] : changed_) {
    for (const auto& [id, booking] : gpu.bookings()) {
      const auto it = before.find(id);
      if (it != before.end() && it->second != std::pair(name, booking.place))
        moves.push_back({.instance = id, .from = it->second.first, .to = name, .place = booking.place});
    }
  }
  std::ranges::sort(moves, {}, &Move::instance);
  return moves;
}

}  // namespace troupe::cluster
