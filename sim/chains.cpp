#include "sim/chains.hpp"

namespace troupe::sim {

std::uint64_t Chains::Begin(std::uint32_t function, Duration at) {
  if (functions_[function].then.empty()) return 0;
  open_[next_].answer = {.function = function, .at = at};
  return next_++;
}

std::vector<std::uint32_t> Chains::Answered(std::uint64_t run, std::uint32_t function, bool served,
                                            Duration now) {
  const auto it = open_.find(run);
  if (it == open_.end()) return {};
  Open& open = it->second;
  open.answer.served = open.answer.served && served;
  std::vector<std::uint32_t> next;
  if (served) next = functions_[function].then;
  open.calls += static_cast<std::uint32_t>(next.size());
  if (--open.calls > 0) return next;
  open.answer.took = now - open.answer.at;
  ended_.push_back(open.answer);
  open_.erase(it);
  return {};
}

}  // namespace troupe::sim
