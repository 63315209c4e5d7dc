#include "base/random.hpp"

#include <cmath>

#include "base/check.hpp"

namespace troupe {

Random::result_type Random::operator()() {
  state_ += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t Random::Below(std::uint64_t bound) {
  TROUPE_CHECK(bound > 0, "an empty range has no element");
  // Rejection keeps it exactly uniform.
  const std::uint64_t limit = max() - max() % bound;
  std::uint64_t draw = (*this)();
  while (draw >= limit) draw = (*this)();
  return draw % bound;
}

double Random::Uniform() {
  return static_cast<double>((*this)() >> 11) * 0x1.0p-53;
}

double Random::Exponential(double mean) {
  return -mean * std::log1p(-Uniform());
}

}  // namespace troupe
