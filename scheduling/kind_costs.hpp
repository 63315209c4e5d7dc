// KIND COSTS: what was learned of one model's runs on each kind of GPU, and what stands for a kind on which
// it is not known yet. Pure.
//
// Of a GPU's own kind count its profile, else the runs that found their weights there. As long as neither is
// known, a run that is known of another kind stands for it: as long as it would be here by the models that ran
// on both kinds, and of several the shortest, since a kind that is thought too fast is tried, and so learned.
// Without any such run it is a run that was swapped in, of the own kind first.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "scheduling/by_kind.hpp"
#include "scheduling/run_time_sketch.hpp"
#include "scheduling/running_estimate.hpp"

namespace troupe {

// How long runs take on one kind of GPU, relative to another.
class KindRatios {
 public:
  // A model's run takes so long on the one, and on the other.
  void Observe(KindId one, Duration run, KindId other, Duration other_run);
  // What takes so long on `from`, on `to`; as long where no model ran on both.
  [[nodiscard]] Duration Scale(Duration run, KindId from, KindId to) const;

 private:
  void Move(KindId one, KindId other, double ratio);

  ByKind<ByKind<double>> ratios_{};  // of the first to the second; 0: not known
};

class KindCosts {
 public:
  // Of one kind.
  struct Learned {
    RunningEstimate run{};      // of runs that had all their weights when they began
    RunningEstimate swapped{};  // of runs with the swap-in before and beneath them
    Duration profiled{};        // zero: no profile says
    RunTimeSketch times{};
    std::uint32_t cuts = 0;

    [[nodiscard]] bool HasRun() const { return profiled > Duration::zero() || run.known(); }
    [[nodiscard]] Duration Run() const { return profiled > Duration::zero() ? profiled : run.Or({}); }
    [[nodiscard]] bool IsEmpty() const { return !HasRun() && !swapped.known() && times.runs() == 0; }
  };

  [[nodiscard]] Learned& At(KindId kind) { return kinds_.At(kind); }
  // Null: nothing is known of the kind.
  [[nodiscard]] const Learned* Find(KindId kind) const { return kinds_.Find(kind); }
  [[nodiscard]] KindId size() const { return kinds_.size(); }

  [[nodiscard]] Duration RunTime(KindId kind, const KindRatios& ratios, Duration unknown) const {
    const Learned* const own = Find(kind);
    if (own != nullptr && own->HasRun()) return own->Run();
    if (own != nullptr && kinds_.IsOfOneKind()) return own->swapped.Or(unknown);
    return OtherRunTime(kind, ratios, unknown);
  }
  // A run on this kind was learned: with what is known of others it tells how the kinds compare.
  void Compare(KindId kind, KindRatios& ratios) const;
  // What counts for a GPU of this kind: what is known of it, else of the kind that stands for it.
  [[nodiscard]] const Learned& Standing(KindId kind) const {
    const Learned* const own = Find(kind);
    const bool counts = own != nullptr && (kinds_.IsOfOneKind() || own->HasRun() || own->swapped.known());
    return counts ? *own : Other();
  }
  // On some kind a run was seen that found its weights.
  [[nodiscard]] bool Ran() const;
  // On some kind both were measured: a run that found its weights, and a swapped one.
  [[nodiscard]] bool Measured() const;
  [[nodiscard]] bool MeasuredOn(KindId kind) const;
  // All but what profiles say.
  void Forget();

 private:
  [[nodiscard]] Duration OtherRunTime(KindId kind, const KindRatios& ratios, Duration unknown) const;
  [[nodiscard]] const Learned& Other() const;
  // Of all kinds; null: none has one.
  [[nodiscard]] const Learned* ShortestRun() const;
  [[nodiscard]] const Learned* ShortestSwapped() const;

  ByKind<Learned> kinds_{};
};

}  // namespace troupe
