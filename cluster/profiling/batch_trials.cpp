#include "cluster/profiling/batch_trials.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cluster/profiling/trial_plan.hpp"

namespace troupe::cluster {

namespace {

// Both ends, halving what lies between them.
std::size_t TrialsOfASearch(std::size_t shares) {
  return shares <= 2 ? shares : 2 + std::bit_width(shares - 2);
}

std::size_t PlaceOf(const std::vector<double>& values, std::uint32_t value) {
  return static_cast<std::size_t>(std::ranges::lower_bound(values, static_cast<double>(value)) -
                                  values.begin());
}

}  // namespace

BatchTrials::BatchTrials(const proto::ProfilingGrid& grid, const std::vector<const proto::ProfileRow*>& rows)
    : shares_(grid.sm_partitions().begin(), grid.sm_partitions().end()),
      quotas_(grid.quota_limits().begin(), grid.quota_limits().end()) {
  const auto points = shares_.size() * quotas_.size();
  const auto part = static_cast<std::size_t>(kBisectedPart * static_cast<double>(points));
  budget_ = std::min(points, std::max(part, TrialsOfASearch(shares_.size())));
  for (const auto* row : rows)
    trials_[{PlaceOf(shares_, row->sm_partition()), PlaceOf(quotas_, row->quota_limit())}] = row;
  Tell();
}

bool BatchTrials::Measured(const Cell& cell) const {
  const auto it = known_.find(cell);
  return it != known_.end() && it->second->state() == proto::PROFILE_ROW_MEASURED;
}

bool BatchTrials::Take(const Cell& cell) {
  if (known_.contains(cell)) return true;
  const auto it = trials_.find(cell);
  if (it == trials_.end()) {
    if (trials_.size() < budget_) next_ = cell;
    return false;
  }
  const auto foreseen = At(cell);
  const double found = it->second->throughput();
  foreseen_well_ = foreseen && it->second->state() == proto::PROFILE_ROW_MEASURED &&
                   std::abs(foreseen->throughput - found) <= kMostProfileError * found;
  known_.emplace(cell, it->second);
  return true;
}

// The place of the smallest share that is as good as the largest. A share whose trial failed counts as too small.
std::size_t BatchTrials::FindSaturation(bool& complete) {
  const std::size_t top = quotas_.size() - 1;
  std::size_t high = shares_.size() - 1;
  const double most = known_.at({high, top})->throughput();
  const auto saturated = [&](std::size_t share) {
    return Measured({share, top}) && known_.at({share, top})->throughput() >= (1 - kMostProfileError) * most;
  };
  complete = Take({0, top});
  if (!complete || saturated(0)) return 0;
  std::size_t low = 0;
  while (high - low > 1) {
    const auto middle = (low + high) / 2;
    complete = Take({middle, top});
    if (!complete) return high;
    (saturated(middle) ? high : low) = middle;
  }
  return high;
}

std::optional<BatchTrials::Cell> BatchTrials::FarthestIn(std::size_t quota) const {
  std::optional<Cell> farthest;
  std::size_t most = 0;
  for (std::size_t share = 0; share < shares_.size(); ++share) {
    if (known_.contains({share, quota})) continue;
    std::size_t nearest = shares_.size();
    for (const auto& [cell, row] : known_)
      if (cell.quota == quota)
        nearest = std::min(nearest, cell.share > share ? cell.share - share : share - cell.share);
    if (nearest > most) {
      most = nearest;
      farthest = Cell{share, quota};
    }
  }
  return farthest;
}

bool BatchTrials::Refine(std::size_t quota) {
  while (const auto cell = FarthestIn(quota)) {
    if (!Take(*cell)) return false;
    if (foreseen_well_) return true;
  }
  return true;
}

void BatchTrials::RefineFromBelow(std::size_t quota) {
  for (std::size_t share = 0; share < shares_.size(); ++share) {
    if (known_.contains({share, quota})) continue;
    if (!Take({share, quota}) || foreseen_well_) return;
  }
}

void BatchTrials::Tell() {
  const std::size_t top = quotas_.size() - 1;
  const std::size_t last = shares_.size() - 1;
  // Without the whole GPU there is nothing to compare with.
  if (!Take({last, top}) || !Measured({last, top})) return;
  bool complete = true;
  const std::size_t saturation = FindSaturation(complete);
  if (!complete) return;
  for (std::size_t quota = 0; quota < top; ++quota)
    if (!Take({saturation, quota})) return;
  if (!Take({0, 0})) return;
  const bool proportional = top == 0 || saturation == 0 || foreseen_well_;
  if (!Refine(top)) return;
  if (!proportional) RefineFromBelow(0);
}

double BatchTrials::On(const Line& line, double at) {
  const auto after = std::ranges::lower_bound(line, at, {}, &Line::value_type::first);
  if (after == line.begin()) return after->second;
  if (after == line.end()) return line.back().second;
  const auto& [left, low] = *(after - 1);
  const auto& [right, high] = *after;
  return low + (high - low) * (at - left) / (right - left);
}

// At the largest quota: in proportion below the smallest share that was measured.
std::optional<double> BatchTrials::Base(double share) const {
  Line line = {{0, 0}};
  for (const auto& [cell, row] : known_)
    if (cell.quota == quotas_.size() - 1 && Measured(cell))
      line.emplace_back(shares_[cell.share], row->throughput());
  if (line.size() == 1) return std::nullopt;
  return On(line, share);
}

std::optional<BatchTrials::Foreseen> BatchTrials::At(const Cell& cell) const {
  const double share = shares_[cell.share];
  const auto base = Base(share);
  if (!base) return std::nullopt;
  Line parts;      // of the largest quota's throughput, by share
  Line run_rates;  // of runs on the device, at any quota
  for (const auto& [known, row] : known_) {
    if (!Measured(known)) continue;
    if (known.quota == cell.quota)
      parts.emplace_back(shares_[known.share], row->throughput() / *Base(shares_[known.share]));
    if (row->run_ns() > 0)
      run_rates.emplace_back(shares_[known.share], 1.0 / static_cast<double>(row->run_ns()));
  }
  const double part = parts.empty() ? quotas_[cell.quota] / quotas_.back() : On(parts, share);
  Foreseen foreseen{.throughput = *base * part};
  if (run_rates.empty()) return foreseen;
  // Several quotas of one share have been measured alike: the last one of them counts.
  std::ranges::stable_sort(run_rates, {}, &Line::value_type::first);
  Line rates = {{0, 0}};
  for (const auto& point : run_rates)
    point.first == rates.back().first ? static_cast<void>(rates.back() = point) : rates.push_back(point);
  foreseen.run_ns = 1.0 / On(rates, share);
  return foreseen;
}

}  // namespace troupe::cluster
