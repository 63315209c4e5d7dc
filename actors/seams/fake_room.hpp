// FAKE ROOM: what the runs of a fake worker take of its device beside the weights. A run that came before the plan of its model
// takes room that its node could not promise it; while there is such a run, other orders may find no room.
#pragma once

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
  void Planned(const std::string& digest) { planned_.insert(digest); }
  // `free`: of the device, beside the weights.
  [[nodiscard]] bool Has(Bytes more, Bytes free, Bytes unplanned = {}) const {
    return unplanned_ + unplanned == Bytes() || more + running_ <= free;
  }
  [[nodiscard]] Bytes Left(Bytes free) const { return running_ <= free ? free - running_ : Bytes(); }
  // Nothing: it finds no room.
  std::optional<Run> Begin(const std::string& digest, Bytes activation, Bytes free) {
    const Run run{activation, planned_.contains(digest) ? Bytes() : activation};
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
  std::set<std::string> planned_;  // models whose plans the worker has made
  Bytes running_, unplanned_;
};

}  // namespace troupe::actors
