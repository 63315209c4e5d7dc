// Gauges, counters and histograms by name and labels in the daemon's registry: set them to what was measured,
// and forget whole families that are listed anew each time. A name that ends with _total is a counter's.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::actors {

// Used by one thread.
class Gauges {
 public:
  using Labels = std::map<std::string, std::string>;
  explicit Gauges(std::shared_ptr<prometheus::Registry> registry) : registry_(std::move(registry)) {}

  void Set(const std::string& name, const std::string& help, const Labels& labels, double value) {
    name.ends_with("_total") ? SetIn(counters_, name, help, labels, value)
                             : SetIn(gauges_, name, help, labels, value);
  }
  // A histogram whose counting is done elsewhere. `bounds`: upper ends of all buckets but the last; `counts`:
  // of each bucket, one more than bounds; `sum`: of what was observed.
  void SetHistogram(const std::string& name, const std::string& help, const Labels& labels,
                    const std::vector<double>& bounds, const std::vector<double>& counts, double sum);
  // Removes every series of a family of gauges.
  void Clear(const std::string& name) { Keep(name, {}); }
  // Removes the series of a family whose labels are not among these: of what is gone.
  void Keep(const std::string& name, const std::set<Labels>& kept) {
    name.ends_with("_total") ? KeepIn(counters_, name, kept) : KeepIn(gauges_, name, kept);
  }

 private:
  template <class Metric>
  struct Family {
    prometheus::Family<Metric>* family = nullptr;
    std::map<Labels, Metric*> made;
  };
  template <class Metric>
  using Families = std::map<std::string, Family<Metric>>;

  template <class Metric>
  void SetIn(Families<Metric>& families, const std::string& name, const std::string& help,
             const Labels& labels, double value) {
    auto& family = families[name];
    if (family.family == nullptr) family.family = &Builder(family).Name(name).Help(help).Register(*registry_);
    auto& metric = family.made[labels];
    if (metric == nullptr) metric = &family.family->Add(labels);
    if constexpr (std::is_same_v<Metric, prometheus::Counter>) {
      if (value < metric->Value()) {  // what counted has begun anew, and so does the counter
        family.family->Remove(metric);
        metric = &family.family->Add(labels);
      }
      metric->Increment(value - metric->Value());
    } else {
      metric->Set(value);
    }
  }
  template <class Metric>
  static void KeepIn(Families<Metric>& families, const std::string& name, const std::set<Labels>& kept) {
    const auto it = families.find(name);
    if (it == families.end()) return;
    auto* const family = it->second.family;
    std::erase_if(it->second.made, [&](const auto& series) {
      if (kept.contains(series.first)) return false;
      family->Remove(series.second);
      return true;
    });
  }
  static auto Builder(const Family<prometheus::Gauge>&) { return prometheus::BuildGauge(); }
  static auto Builder(const Family<prometheus::Counter>&) { return prometheus::BuildCounter(); }

  struct Histogram {
    prometheus::Histogram* shown = nullptr;
    std::vector<double> counts;
    double sum = 0;
  };

  std::shared_ptr<prometheus::Registry> registry_;
  Families<prometheus::Gauge> gauges_;
  Families<prometheus::Counter> counters_;
  std::map<std::string, std::map<Labels, Histogram>> histograms_;
};

inline void Gauges::SetHistogram(const std::string& name, const std::string& help, const Labels& labels,
                                 const std::vector<double>& bounds, const std::vector<double>& counts,
                                 double sum) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_);
  auto& histogram = histograms_[name][labels];
  const bool anew = histogram.counts.size() != counts.size() ||
                    !std::ranges::equal(histogram.counts, counts, std::ranges::less_equal());
  if (anew) {  // the first time, or what counted has begun anew
    if (histogram.shown != nullptr) family.Remove(histogram.shown);
    histogram = {&family.Add(labels, bounds), std::vector<double>(counts.size()), 0};
  }
  std::vector<double> came(counts.size());
  std::ranges::transform(counts, histogram.counts, came.begin(), std::minus());
  histogram.shown->ObserveMultiple(came, sum - histogram.sum);
  histogram.counts = counts;
  histogram.sum = sum;
}

}  // namespace troupe::actors
