#include "scheduling/kind_costs.hpp"

#include <algorithm>

namespace troupe {

void KindRatios::Move(KindId one, KindId other, double ratio) {
  constexpr double kWeight = 0.1;
  double& known = ratios_.At(one).At(other);
  known = known == 0 ? ratio : known + kWeight * (ratio - known);
}

void KindRatios::Observe(KindId one, Duration run, KindId other, Duration other_run) {
  if (run <= Duration::zero() || other_run <= Duration::zero()) return;
  const double ratio = ToSeconds(run) / ToSeconds(other_run);
  Move(one, other, ratio);
  Move(other, one, 1 / ratio);
}

Duration KindRatios::Scale(Duration run, KindId from, KindId to) const {
  const ByKind<double>* const of = ratios_.Find(to);
  const double* const ratio = of == nullptr ? nullptr : of->Find(from);
  return ratio == nullptr || *ratio == 0 ? run : FromSeconds(ToSeconds(run) * *ratio);
}

void KindCosts::Compare(KindId kind, KindRatios& ratios) const {
  const Learned* const own = Find(kind);
  for (KindId other = 0; own != nullptr && own->HasRun() && other < kinds_.size(); ++other)
    if (other != kind && kinds_.Find(other)->HasRun())
      ratios.Observe(kind, own->Run(), other, kinds_.Find(other)->Run());
}

const KindCosts::Learned* KindCosts::ShortestRun() const {
  const Learned* shortest = nullptr;
  for (KindId kind = 0; kind < kinds_.size(); ++kind) {
    const Learned* const one = kinds_.Find(kind);
    if (one->HasRun() && (shortest == nullptr || one->Run() < shortest->Run())) shortest = one;
  }
  return shortest;
}

const KindCosts::Learned* KindCosts::ShortestSwapped() const {
  const Learned* shortest = nullptr;
  for (KindId kind = 0; kind < kinds_.size(); ++kind) {
    const Learned* const one = kinds_.Find(kind);
    if (one->swapped.known() && (shortest == nullptr || one->swapped.Or({}) < shortest->swapped.Or({})))
      shortest = one;
  }
  return shortest;
}

Duration KindCosts::OtherRunTime(KindId kind, const KindRatios& ratios, Duration unknown) const {
  Duration shortest = Duration::max();
  for (KindId other = 0; other < kinds_.size(); ++other)
    if (kinds_.Find(other)->HasRun())
      shortest = std::min(shortest, ratios.Scale(kinds_.Find(other)->Run(), other, kind));
  if (shortest != Duration::max()) return shortest;
  const Learned* const own = Find(kind);
  if (own != nullptr && own->swapped.known()) return own->swapped.Or({});
  const Learned* const swapped = ShortestSwapped();
  return swapped == nullptr ? unknown : swapped->swapped.Or({});
}

const KindCosts::Learned& KindCosts::Other() const {
  if (const Learned* const other = ShortestRun()) return *other;
  if (const Learned* const other = ShortestSwapped()) return *other;
  return *kinds_.Find(0);
}

bool KindCosts::Ran() const {
  for (KindId kind = 0; kind < kinds_.size(); ++kind)
    if (kinds_.Find(kind)->run.known()) return true;
  return false;
}

bool KindCosts::Measured() const {
  for (KindId kind = 0; kind < kinds_.size(); ++kind)
    if (MeasuredOn(kind)) return true;
  return false;
}

bool KindCosts::MeasuredOn(KindId kind) const {
  const Learned* const own = Find(kind);
  return own != nullptr && own->run.known() && own->swapped.known();
}

void KindCosts::Forget() {
  for (KindId kind = 0; kind < kinds_.size(); ++kind) {
    Learned& one = kinds_.At(kind);
    one = {.profiled = one.profiled};
  }
}

}  // namespace troupe
