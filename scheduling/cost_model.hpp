// The cost model that several decisions share: how long a model takes to load and to run, learned from
// outcomes. It also says whether a model is heavy, that is, whether its run is slowed when it has to be
// swapped in (Torpor, 002, 5.3). All of that is by the kind of GPU (003, section VI); what stands for a kind on
// which a model is not known yet is said in scheduling/kind_costs.hpp. One decision object owns it at a time
// (no locks). It remembers a bounded number of models: the model that was not seen for longest is forgotten
// for a new one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "base/units.hpp"
#include "scheduling/by_kind.hpp"
#include "scheduling/kind_costs.hpp"
#include "scheduling/run_time_sketch.hpp"
#include "scheduling/running_estimate.hpp"

namespace troupe {

// For which share of the last seconds something was busy: what is added counts at once, and fades.
class BusyShare {
 public:
  // `among`: the things that share the work.
  void Add(Duration work, Time now, std::uint32_t among);
  [[nodiscard]] double At(Time now) const;

 private:
  double share_ = 0;
  Time last_{};
  // A decision asks again and again, at one time.
  mutable Time asked_{};
  mutable double at_ = 0;
};

struct CostDefaults {
  BytesPerSecond link{6e9};                      // until a load was seen
  Duration run = std::chrono::milliseconds(10);  // of a model that never ran
  // A swapped run that takes longer than this, relative to a resident one, makes a model heavy. In Torpor's
  // Table 4 light models are slowed by at most 1.21, the others by 1.44 at least.
  double heavy_slowdown = 1.3;
  std::size_t max_models = 10'000;
};

// What is known of one model on one kind of GPU, to be kept and read again.
struct ModelCost {
  std::string model{};
  Duration run{};                          // zero: not seen
  Duration swapped{};                      // zero: not seen
  std::vector<std::uint32_t> run_times{};  // RunTimeSketch::Counts
  KindId kind = 0;
};

// What it costs to swap one model. A decision that looks at many models asks for all of it at once.
struct SwapCosts {
  Duration load{};     // over the link
  Duration run{};      // of a run that finds its weights
  Duration delay{};    // by how much a run that has to bring them is slower
  bool heavy = false;  // swapping slows its run
};

class CostModel {
 public:
  // A number that stands for the model from Hold to the last Release, so that frequent callers need no look-
  // up by name.
  using Id = std::uint32_t;

  explicit CostModel(CostDefaults defaults = {}) : defaults_(defaults) {}
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;

  // The number stays the model's until each holder has released it; what is known of the model is kept, or
  // forgotten for another one, all the same.
  Id Hold(const std::string& model);
  void Release(Id model);

  // `kind` is the kind of the GPU, here and below; who knows one kind only leaves it out.
  void ObserveLoad(Bytes bytes, Duration took, KindId kind = 0);
  // A run that had all its weights when it began.
  void ObserveRun(Id model, Duration took, KindId kind = 0);
  // A run with the swap-in before and beneath it, alone on its GPU: from the begin of the one to the end of
  // the other.
  void ObserveSwapped(Id model, Duration took, KindId kind = 0);

  // How long a run takes by a profile, which counts for more than what was learned; zero: no profile says.
  void SetProfiled(const std::string& model, Duration run, KindId kind = 0);

  // How long a run had the GPU, its wait for weights apart; and that it was cut since it had it for too long.
  void ObserveCompute(Id model, Duration took, KindId kind = 0);
  void NoteCut(Id model, KindId kind = 0);
  // What was learned of the kind itself; null: nothing.
  [[nodiscard]] const KindCosts::Learned* LearnedOf(Id model, KindId kind) const {
    return entries_[model].costs.Find(kind);
  }

  // Time to bring `bytes` over the link, at the rate that was last seen; of a kind whose link was not seen yet,
  // at the highest rate of the others.
  [[nodiscard]] Duration LoadTime(Bytes bytes, KindId kind = 0) const;
  [[nodiscard]] Duration RunTime(Id model, KindId kind = 0) const {
    return entries_[model].costs.RunTime(kind, ratios_, defaults_.run);
  }
  // A resident run was seen on some kind, here or by an earlier process.
  [[nodiscard]] bool Ran(Id model) const { return entries_[model].costs.Ran(); }
  // Does swapping over the link slow this model's run? What was measured, or as long as that is missing, a
  // run that hides beneath its load (or the other way round) without loss.
  [[nodiscard]] bool Heavy(Id model, Bytes weights, KindId kind = 0) const {
    return HeavyOf(&entries_[model], LoadTime(weights, kind), kind);
  }
  // By how much a run that has to bring its weights is slower than a run that finds them.
  [[nodiscard]] Duration SwapDelay(Id model, Bytes weights, KindId kind = 0) const {
    return DelayOf(entries_[model], LoadTime(weights, kind), kind);
  }
  [[nodiscard]] SwapCosts CostsOf(Id model, Bytes weights, KindId kind = 0) const;
  // Whether both were measured on one kind: a resident run and a swapped one.
  [[nodiscard]] bool Measured(const std::string& model) const;
  [[nodiscard]] bool MeasuredOn(const std::string& model, KindId kind) const;

  // The same of models by name, held or not.
  void ObserveRun(const std::string& model, Duration took, KindId kind = 0);
  void ObserveSwapped(const std::string& model, Duration took, KindId kind = 0);
  [[nodiscard]] Duration RunTime(const std::string& model, KindId kind = 0) const;
  [[nodiscard]] bool Heavy(const std::string& model, Bytes weights, KindId kind = 0) const {
    return HeavyOf(Find(model), LoadTime(weights, kind), kind);
  }

  // All that is known, in the order of the models' names, then of the kinds; and of each kind's link, zero:
  // no load was seen.
  [[nodiscard]] std::vector<ModelCost> Known() const;
  [[nodiscard]] const ByKind<double>& nanos_per_byte() const { return nanos_per_byte_; }
  // What an earlier process knew; observations move it like any other. Values that make no sense are left
  // out.
  void Restore(const std::vector<ModelCost>& known, const ByKind<double>& nanos_per_byte);
  // Changes with every observation.
  [[nodiscard]] std::uint64_t revision() const { return revision_; }

 private:
  static constexpr Id kNone = ~Id{0};
  // Models that were seen stand in a list, the last seen first.
  struct Entry {
    KindCosts costs{};
    std::uint32_t holders = 0;
    bool seen = false;
    Id newer = kNone, older = kNone;
    const std::string* name = nullptr;  // of ids_; null: the number is free
  };
  [[nodiscard]] const Entry* Find(const std::string& model) const;  // null: unknown
  [[nodiscard]] double FewestNanosPerByte() const;                  // 0: no load was seen
  [[nodiscard]] bool HeavyOf(const Entry* entry, Duration load, KindId kind) const;
  [[nodiscard]] Duration DelayOf(const Entry& entry, Duration load, KindId kind) const;
  static void SetProfiled(Entry& entry, const ByKind<Duration>& runs);
  Id IdOf(const std::string& model);
  Entry& Touch(Id id);
  void Unlink(Id id);
  void Forget(Id id);
  void FreeUnused(Id id);

  CostDefaults defaults_;
  ByKind<double> nanos_per_byte_{};  // 0: no load was seen
  KindRatios ratios_{};
  absl::node_hash_map<std::string, Id> ids_;
  std::vector<Entry> entries_;
  absl::node_hash_map<std::string, ByKind<Duration>> profiled_;  // of models with an entry, and of others
  std::vector<Id> free_;
  Id newest_ = kNone, oldest_ = kNone;
  std::size_t seen_ = 0;  // entries in the list
  std::uint64_t revision_ = 0;
};

}  // namespace troupe
