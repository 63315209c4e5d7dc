// The cost model that several decisions share: how long a model takes to load and to run, learned from
// outcomes, and so whether it is heavy: a model whose run is slowed when it has to be swapped in (Torpor,
// 002, 5.3). Owned by one decision object at a time (no locks). It remembers a bounded number of models: the
// one that was not seen for longest is forgotten for another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.hpp"

namespace troupe {

// A running mean that follows change: each observation moves it by a fifth of the difference, the first one
// sets it.
class RunningEstimate {
 public:
  void Observe(Duration value);
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] Duration Or(Duration fallback) const { return known_ ? Duration(mean_) : fallback; }

 private:
  Duration::rep mean_ = 0;
  bool known_ = false;
};

// For which share of the last seconds something was busy: what is added counts at once, and fades.
class BusyShare {
 public:
  // `among`: the things that share the work.
  void Add(Duration work, Time now, std::uint32_t among);
  [[nodiscard]] double At(Time now) const;

 private:
  double share_ = 0;
  Time last_{};
};

struct CostDefaults {
  BytesPerSecond link{6e9};                      // until a load was seen
  Duration run = std::chrono::milliseconds(10);  // of a model that never ran
  // A swapped run that takes longer than this, relative to a resident one, makes a model heavy. In Torpor's
  // Table 4 light models are slowed by at most 1.21, the others by 1.44 at least.
  double heavy_slowdown = 1.3;
  std::size_t max_models = 10'000;
};

// What is known of one model, to be kept and read again.
struct ModelCost {
  std::string model{};
  Duration run{};      // zero: not seen
  Duration swapped{};  // zero: not seen
};

class CostModel {
 public:
  explicit CostModel(CostDefaults defaults = {}) : defaults_(defaults) {}

  void ObserveLoad(Bytes bytes, Duration took);
  // A run that had all its weights when it began.
  void ObserveRun(const std::string& model, Duration took);
  // A run with the swap-in before and beneath it, alone on its GPU: from the begin of the one to the end of
  // the other.
  void ObserveSwapped(const std::string& model, Duration took);

  // Time to bring `bytes` over the link, at the rate that was last seen.
  [[nodiscard]] Duration LoadTime(Bytes bytes) const;
  [[nodiscard]] Duration RunTime(const std::string& model) const;
  // Does swapping over the link slow this model's run? What was measured, or as long as that is missing, a
  // run that hides beneath its load (or the other way round) without loss.
  [[nodiscard]] bool Heavy(const std::string& model, Bytes weights) const;
  // By how much a run that has to bring its weights is slower than one that finds them.
  [[nodiscard]] Duration SwapDelay(const std::string& model, Bytes weights) const;
  // Whether both were measured: a resident run and a swapped one.
  [[nodiscard]] bool Measured(const std::string& model) const;

  // All that is known, in the order of the models' names. `nanos_per_byte` zero: no load was seen.
  [[nodiscard]] std::vector<ModelCost> Known() const;
  [[nodiscard]] double nanos_per_byte() const { return nanos_per_byte_; }
  // What an earlier process knew; observations move it like any other. Values that make no sense are left
  // out.
  void Restore(const std::vector<ModelCost>& known, double nanos_per_byte);
  // Changes with every observation.
  [[nodiscard]] std::uint64_t revision() const { return revision_; }

 private:
  struct Entry {
    RunningEstimate run;
    RunningEstimate swapped;
    std::uint64_t last = 0;
  };
  Entry& Touch(const std::string& model);

  CostDefaults defaults_;
  double nanos_per_byte_ = 0;  // 0: no load was seen
  absl::flat_hash_map<std::string, Entry> models_;
  std::uint64_t revision_ = 0;
};

}  // namespace troupe
