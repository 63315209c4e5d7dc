// Gauges by name and labels in the daemon's registry: set them, and forget whole families that are listed
// anew each time.
#pragma once

#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

namespace troupe::actors {

// One thread.
class Gauges {
 public:
  using Labels = std::map<std::string, std::string>;
  explicit Gauges(std::shared_ptr<prometheus::Registry> registry) : registry_(std::move(registry)) {}

  void Set(const std::string& name, const std::string& help, const Labels& labels, double value) {
    auto& family = FamilyOf(name, help);
    auto& gauge = family.made[labels];
    if (gauge == nullptr) gauge = &family.family->Add(labels);
    gauge->Set(value);
  }
  // Removes every series of a family.
  void Clear(const std::string& name) {
    const auto it = families_.find(name);
    if (it == families_.end()) return;
    for (auto& [labels, gauge] : it->second.made) it->second.family->Remove(gauge);
    it->second.made.clear();
  }

 private:
  struct Family {
    prometheus::Family<prometheus::Gauge>* family = nullptr;
    std::map<Labels, prometheus::Gauge*> made;
  };
  Family& FamilyOf(const std::string& name, const std::string& help) {
    auto& entry = families_[name];
    if (entry.family == nullptr)
      entry.family = &prometheus::BuildGauge().Name(name).Help(help).Register(*registry_);
    return entry;
  }

  std::shared_ptr<prometheus::Registry> registry_;
  std::map<std::string, Family> families_;
};

}  // namespace troupe::actors
