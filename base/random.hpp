// Seeded randomness. Nothing in Troupe draws from an unseeded source: one seed replays a run.
#pragma once

#include <cstdint>

namespace troupe {

// SplitMix64 (Steele, Lea, Flood 2014): small, fast, the same sequence on every machine. Satisfies
// UniformRandomBitGenerator, but use the members below: std:: distributions differ between libraries.
class Random {
 public:
  using result_type = std::uint64_t;
  explicit Random(std::uint64_t seed) : state_(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()();
  // Uniform in [0, bound); bound must be positive.
  std::uint64_t Below(std::uint64_t bound);
  // Uniform in [0, 1).
  double Uniform();
  // Exponential with the given mean (same unit as the mean).
  double Exponential(double mean);
  // An independent generator, for a part that must not disturb this one's sequence.
  [[nodiscard]] Random Fork() { return Random((*this)()); }

 private:
  std::uint64_t state_;
};

}  // namespace troupe
