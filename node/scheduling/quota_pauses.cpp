#include "node/scheduling/quota_pauses.hpp"

#include <algorithm>

namespace troupe::node {

void QuotaPauses::Note(const FunctionNumber& function, GpuIndex gpu, Time until) {
  std::vector<Pause>& pauses = pauses_[function];
  const auto found = std::ranges::find(pauses, gpu, &Pause::gpu);
  if (found == pauses.end()) {
    pauses.push_back({gpu, until});
  } else {
    found->until = std::max(found->until, until);
  }
  next_end_ = std::min(next_end_, until);
}

Time QuotaPauses::Find(const FunctionNumber& function, GpuIndex gpu) const {
  const auto found = pauses_.find(function);
  if (found == pauses_.end()) return Time::min();
  const auto pause = std::ranges::find(found->second, gpu, &Pause::gpu);
  return pause == found->second.end() ? Time::min() : pause->until;
}

std::vector<GpuIndex> QuotaPauses::End(Time now) {
  std::vector<GpuIndex> ended;
  if (now < next_end_) return ended;
  next_end_ = Time::max();
  for (auto entry = pauses_.begin(); entry != pauses_.end();) {
    const auto here = entry++;
    std::erase_if(here->second, [&](const Pause& pause) {
      if (pause.until > now) next_end_ = std::min(next_end_, pause.until);
      if (pause.until <= now) ended.push_back(pause.gpu);
      return pause.until <= now;
    });
    if (here->second.empty()) pauses_.erase(here);
  }
  std::ranges::sort(ended);
  ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
  return ended;
}

}  // namespace troupe::node
