#include "gpu/memory/run_pool.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace troupe::gpu {

RunPool::RunPool(MemoryPolicy::Pool policy, Duration interval) : policy_(policy), interval_(interval) {}

RunPool::Model& RunPool::At(std::string_view digest) {
  const auto found = models_.find(digest);
  return found != models_.end() ? found->second : models_.emplace(digest, Model()).first->second;
}

// What a model keeps of the pool, used or not.
Bytes RunPool::KeptFor(const Model& model) const {
  switch (policy_) {
    case MemoryPolicy::Pool::kStatic:
      return std::max(model.resident > 0 ? model.plan_peak : Bytes(0), model.held);
    case MemoryPolicy::Pool::kHighWater:
      return std::max(model.resident > 0 ? model.high_water : Bytes(0), model.held);
    case MemoryPolicy::Pool::kNone:
    case MemoryPolicy::Pool::kPredicted:
      break;
  }
  return model.held;
}

template <class Change>
void RunPool::Edit(std::string_view digest, Change change) {
  Model& model = At(digest);
  kept_ -= KeptFor(model);
  change(model);
  kept_ += KeptFor(model);
  peak_ = std::max(peak_, size());
}

void RunPool::Arrived(std::string_view digest) {
  Edit(digest, [](Model& model) { ++model.resident; });
}

void RunPool::Left(std::string_view digest) {
  Edit(digest, [](Model& model) {
    TROUPE_CHECK(model.resident > 0, "a model left that had not arrived");
    --model.resident;
    if (model.resident == 0) model.high_water = model.held;
  });
  ForgetIfGone(digest);
}

// What its plans need is worth remembering only while it is here.
void RunPool::ForgetIfGone(std::string_view digest) {
  const auto found = models_.find(digest);
  if (found->second.resident == 0 && found->second.held == Bytes(0)) models_.erase(found);
}

void RunPool::Planned(std::string_view digest, Bytes peak) {
  if (models_.find(digest) == models_.end()) return;
  Edit(digest, [peak](Model& model) { model.plan_peak = std::max(model.plan_peak, peak); });
}

void RunPool::Took(std::string_view digest, Bytes bytes) {
  held_ += bytes;
  Edit(digest, [bytes](Model& model) {
    model.held += bytes;
    model.high_water = std::max(model.high_water, model.held);
  });
}

void RunPool::GaveBack(std::string_view digest, Bytes bytes) {
  held_ -= bytes;
  Edit(digest, [bytes](Model& model) { model.held -= bytes; });
  ForgetIfGone(digest);
}

void RunPool::Expect(Bytes bytes) {
  expected_ = bytes;
  peak_ = std::max(peak_, size());
}

RunPool::RunId RunPool::Began(std::shared_ptr<const MemoryProfile> profile, Time now) {
  // Its first steps cannot wait for the next look.
  if (policy_ == MemoryPolicy::Pool::kPredicted) predicted_ += profile->At(0);
  runs_.emplace(next_, Run{std::move(profile), 0, now});
  peak_ = std::max(peak_, size());
  return next_++;
}

void RunPool::Reached(RunId run, std::size_t step, Time now) {
  const auto found = runs_.find(run);
  TROUPE_CHECK(found != runs_.end(), "a run reached a step that has ended");
  found->second.step = step;
  found->second.reached = now;
}

void RunPool::Ended(RunId run) {
  TROUPE_CHECK(runs_.erase(run) == 1, "a run ended twice");
}

void RunPool::Follow(Time now) {
  if (policy_ != MemoryPolicy::Pool::kPredicted) return;
  Bytes current;
  Bytes coming;
  for (const auto& [id, run] : runs_) {
    const MemoryProfile& profile = *run.profile;
    // A step only ever lasts longer than it did alone: what the profile puts into the interval is the most
    // that can be reached in it.
    const auto steps = static_cast<std::int64_t>(profile.steps());
    const Duration begun =
        profile.run_time() * static_cast<std::int64_t>(run.step) / steps + (now - run.reached);
    const std::size_t step = std::max(run.step, profile.StepAfter(begun));
    // From the step that it was last seen at: it may be late.
    current += profile.At(run.step);
    coming += profile.MaxOf(run.step, std::max(step, profile.StepAfter(begun + interval_)));
  }
  predicted_ = std::max(current, coming);
  peak_ = std::max(peak_, size());
}

Bytes RunPool::size() const {
  if (policy_ == MemoryPolicy::Pool::kNone) return kept_;
  const Bytes most = std::max(kept_, held_ + expected_);
  return policy_ == MemoryPolicy::Pool::kPredicted ? std::max(most, predicted_) : most;
}

}  // namespace troupe::gpu
