// How long one run of a function may have a GPU, so that no function keeps a GPU from its neighbours.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "scheduling/run_time_sketch.hpp"

namespace troupe::node {

struct RunLimit {
  enum class Source {
    kDeclared,  // by the function's deployment
    kLearned,   // from the model's runs
    kDefault,   // too few runs are known
  };
  Duration limit{};
  Source source = Source::kDefault;
};

// What is known of a model when one of its runs is ordered.
struct KnownRuns {
  RunTimeSketch times{};
  std::uint32_t cuts = 0;  // of its runs in a row, since one ended by itself
};

struct RunLimitRules {
  std::uint32_t enough_runs = 32;  // with less, nothing is learned
  double percentile = 99;
  int factor = 20;  // the learned limit is so many times the percentile
  Duration least = std::chrono::seconds(1);
  // Of a function that did not declare its limit; also until enough runs are known. A function without a
  // declared limit whose runs are cut one after the other has half of it after each, down to `least`.
  Duration most = std::chrono::seconds(10);
};

// `declared`: zero when the function's deployment says nothing. `sm_percent`: the part of a GPU's SMs that
// the run gets, zero for all; a learned limit is longer by as much as the part is smaller, up to `most`. A
// run that was cut teaches nothing, so a function cannot raise its limit by being cut.
[[nodiscard]] RunLimit RunLimitFor(Duration declared, const KnownRuns& known, std::uint32_t sm_percent,
                                   const RunLimitRules& rules = {});

// DEADLINE_EXCEEDED: what the caller of a run that was cut is told.
[[nodiscard]] absl::Status RunCut(const std::string& function, Duration ran, const RunLimit& limit);

}  // namespace troupe::node
