// FAKE KEPT WEIGHTS: what a fake worker leaves on its GPU when it dies, for the next one that serves the same key.
// As in a real one, a model that was taken over counts as resident, and is compared when an order first uses it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/units.hpp"

namespace troupe::actors {

// Of one GPU. Without `on` everything ends with its worker.
class FakeKept {
 public:
  using Models = std::map<std::string, Bytes>;  // by digest
  bool on = false;
  // The dying worker has written over each model of this number that is taken over; 0: over none.
  std::uint64_t spoil_every = 0;
  bool trust = false;       // a mistake on purpose: nothing is compared
  std::uint64_t taken = 0;  // models that were taken over, in all lives
  std::uint64_t found = 0;  // of these, models that were found to be spoiled

  // A worker has died, and had these on its GPU.
  void Leave(std::string runtime, Models models) {
    runtime_ = std::move(runtime);
    left_ = on ? std::move(models) : Models();
  }
  // The daemon, which kept the memory, is gone.
  void Lose() { left_.clear(); }
  // The models that a new worker finds.
  [[nodiscard]] Models TakeOver(const std::string& runtime) {
    unchecked_.clear();
    auto models = std::exchange(left_, {});
    if (runtime != runtime_) models.clear();
    std::erase_if(spoiled_, [&](const auto& digest) { return !models.contains(digest); });
    for (const auto& [digest, bytes] : models) {
      unchecked_.insert(digest);
      ++taken;
      if (spoil_every > 0 && taken % spoil_every == 0) spoiled_.insert(digest);
    }
    return models;
  }
  [[nodiscard]] bool Unchecked(const std::string& digest) const { return unchecked_.contains(digest); }
  // An order uses the model for the first time. True: it is not whole, and is gone.
  [[nodiscard]] bool Refuted(const std::string& digest) {
    const bool refuted = unchecked_.erase(digest) > 0 && !trust && spoiled_.erase(digest) > 0;
    found += refuted ? 1 : 0;
    return refuted;
  }
  // The model was evicted, or has come from the host.
  void Forget(const std::string& digest) {
    unchecked_.erase(digest);
    spoiled_.erase(digest);
  }
  // What runs of the model give is wrong.
  [[nodiscard]] bool Spoiled(const std::string& digest) const { return spoiled_.contains(digest); }
  [[nodiscard]] std::size_t unchecked() const { return unchecked_.size(); }

 private:
  std::string runtime_;
  Models left_;
  std::set<std::string> unchecked_;
  std::set<std::string> spoiled_;
};

}  // namespace troupe::actors
