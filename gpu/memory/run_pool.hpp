// RUN POOL: how much of the quota is set aside for runs, beyond what they hold. Weights may not take that.
//
//   static      the peaks of all plans of the models that are resident
//   fine        what each model's runs have held at most: it keeps that while it is resident
//   resilient   what the running plans will need at most in the next interval (004 Algorithm 1)
// And never less than what runs hold and what those need that are about to be launched (Expect). Pure; the
// main loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "gpu/memory/memory_policy.hpp"
#include "gpu/memory/memory_profile.hpp"

namespace troupe::gpu {

class RunPool {
 public:
  // `interval`: how far Algorithm 1 looks ahead; it looks twice as often. The paper's is the time in which
  // 200 MB are allocated and freed.
  RunPool(MemoryPolicy::Pool policy, Duration interval);

  // A model is (no longer) resident: as many Left as Arrived.
  void Arrived(std::string_view digest);
  void Left(std::string_view digest);
  // A run of this model, which is resident or runs, needs so much memory; a model that is neither is ignored.
  void Planned(std::string_view digest, Bytes peak);
  void Took(std::string_view digest, Bytes bytes);
  void GaveBack(std::string_view digest, Bytes bytes);

  // What runs that are about to be launched need at once beyond what is held.
  void Expect(Bytes bytes);

  // Algorithm 1: runs whose needs are known by step.
  using RunId = std::uint64_t;
  RunId Began(std::shared_ptr<const MemoryProfile> profile, Time now);
  // Its real place, when it is known: a run that shares the GPU is later than its profile.
  void Reached(RunId run, std::size_t step, Time now);
  void Ended(RunId run);
  // Looks ahead. Between two calls the pool only grows.
  void Follow(Time now);
  [[nodiscard]] Duration interval() const { return interval_; }

  [[nodiscard]] Bytes size() const;
  [[nodiscard]] Bytes held() const { return held_; }
  [[nodiscard]] Bytes peak() const { return peak_; }
  // Memory that is reserved for runs.
  [[nodiscard]] Bytes set_aside() const { return size() - held_; }

 private:
  struct Model {
    std::uint32_t resident = 0;
    Bytes held;
    Bytes high_water;
    Bytes plan_peak;
  };
  struct Run {
    std::shared_ptr<const MemoryProfile> profile;
    std::size_t step = 0;
    Time reached;  // when `step` began
  };
  using Models = std::map<std::string, Model, std::less<>>;
  Model& At(std::string_view digest);
  void ForgetIfGone(std::string_view digest);
  [[nodiscard]] Bytes KeptFor(const Model& model) const;
  // Brings the sums up to date round a change of one model.
  template <class Change>
  void Edit(std::string_view digest, Change change);

  const MemoryPolicy::Pool policy_;
  const Duration interval_;
  Models models_;
  std::map<RunId, Run> runs_;
  RunId next_ = 1;
  Bytes held_;
  Bytes kept_;  // sum of KeptFor
  Bytes predicted_;
  Bytes expected_;
  Bytes peak_;
};

}  // namespace troupe::gpu
