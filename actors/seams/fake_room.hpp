// FAKE ROOM: what the runs of a fake worker take of its device beside the weights. A run that came before the plan of its model
// takes room that its node could not promise it; while there is such a run, other orders may find no room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/units.hpp"

namespace troupe::actors {

class FakeRoom {
 public:
  struct Run {
    Bytes activation{};
    Bytes unplanned{};
  };
  void Planned(const std::string& digest, Time now) { planned_.try_emplace(digest, now); }
  // A run of the model comes, and begins later. Its node may have decided on it before it heard of the plan, and sent it when
  // others had left.
  void Asked(std::uint64_t order, const std::string& digest, Time now) {
    const auto planned = planned_.find(digest);
    if (planned == planned_.end() || now < planned->second + kDecided) before_plan_.insert(order);
  }
  // `free`: of the device, beside the weights.
  [[nodiscard]] bool Has(Bytes more, Bytes free, Bytes unplanned = {}) const {
    return unplanned_ + unplanned == Bytes() || more + running_ <= free;
  }
  [[nodiscard]] Bytes Left(Bytes free) const { return running_ <= free ? free - running_ : Bytes(); }
  // Nothing: it finds no room.
  std::optional<Run> Begin(std::uint64_t order, Bytes activation, Bytes free) {
    const Run run{activation, before_plan_.erase(order) > 0 ? activation : Bytes()};
    if (!Has(activation, free, run.unplanned)) return std::nullopt;
    running_ += run.activation;
    unplanned_ += run.unplanned;
    return run;
  }
  void End(const Run& run) {
    running_ -= run.activation;
    unplanned_ -= run.unplanned;
  }
  [[nodiscard]] Bytes running() const { return running_; }

 private:
  static constexpr Duration kDecided = std::chrono::milliseconds(100);

  std::map<std::string, Time> planned_;  // when the worker made the plans of these models
  std::set<std::uint64_t> before_plan_;  // runs that were decided on before, and have not begun
  Bytes running_, unplanned_;
};

}  // namespace troupe::actors
