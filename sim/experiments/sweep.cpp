#include "sim/experiments/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::sim {

namespace {

class Runner {
 public:
  Runner(const Sweep& sweep, const ExperimentOptions& options)
      : sweep_(sweep), options_(options), done_(sweep.cases.size() * options.seeds) {}

  absl::StatusOr<SweepValues> Go() {
    const auto threads = std::clamp<std::size_t>(options_.jobs, 1, std::max<std::size_t>(done_.size(), 1));
    {
      std::vector<std::jthread> pool;
      for (std::size_t i = 1; i < threads; ++i) pool.emplace_back([this] { Work(); });
      Work();
    }
    if (!failure_.ok()) return failure_;
    return Collect();
  }

 private:
  void Work() {
    for (;;) {
      const std::size_t index = next_++;
      if (index >= done_.size() || !Announce(index)) return;
      auto summary = RunOne(index);
      const std::scoped_lock lock(mutex_);
      if (!summary.ok()) {
        if (failure_.ok()) failure_ = summary.status();
        next_ = done_.size();
        return;
      }
      done_[index] = *std::move(summary);
    }
  }

  [[nodiscard]] const SweepCase& CaseOf(std::size_t index) const {
    return sweep_.cases[index / options_.seeds];
  }
  [[nodiscard]] std::uint64_t SeedOf(std::size_t index) const { return index % options_.seeds + 1; }

  bool Announce(std::size_t index) {
    const std::scoped_lock lock(mutex_);
    const auto what = absl::StrCat(CaseOf(index).key, ", seed ", SeedOf(index));
    if (!options_.go_on || options_.go_on(what)) return true;
    next_ = done_.size();
    return false;
  }

  // Empty: it was interrupted.
  absl::StatusOr<std::optional<Summary>> RunOne(std::size_t index) {
    TROUPE_ASSIGN_OR_RETURN(auto setup, CaseOf(index).setup(SeedOf(index)));
    if (options_.interrupted) setup.go_on = [this](const Progress&) { return !options_.interrupted(); };
    TROUPE_ASSIGN_OR_RETURN(const auto outcome, Simulate(setup));
    if (outcome.ended_early) return std::nullopt;
    if (const auto status = outcome.Conserved(); !status.ok())
      return absl::InternalError(absl::StrCat(status.message(), " (", sweep_.experiment, ", ",
                                              CaseOf(index).key, ", seed ", SeedOf(index), ")"));
    return sweep_.summarize(setup, outcome);
  }

  [[nodiscard]] SweepValues Collect() const {
    SweepValues values;
    for (std::size_t i = 0; i < done_.size(); i += options_.seeds) {
      const auto first = done_.begin() + static_cast<std::ptrdiff_t>(i);
      if (!std::all_of(first, first + options_.seeds, [](const auto& summary) { return summary; })) continue;
      for (auto it = first; it != first + options_.seeds; ++it)
        for (const auto& [name, value] : **it) values[CaseOf(i).key][name].push_back(value);
    }
    return values;
  }

  const Sweep& sweep_;
  const ExperimentOptions& options_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::vector<std::optional<Summary>> done_;  // by case, then seed
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<SweepValues> RunSweep(const Sweep& sweep, const ExperimentOptions& options) {
  return Runner(sweep, options).Go();
}

std::vector<Figure> FiguresOf(const Sweep& sweep, const SweepValues& values) {
  std::vector<Figure> figures;
  for (const SweepCase& sweep_case : sweep.cases) {
    const auto of = values.find(sweep_case.key);
    if (of == values.end()) continue;
    for (const SweepQuantity& quantity : sweep.quantities) {
      const auto it = of->second.find(quantity.name);
      if (it == of->second.end()) continue;
      const auto name = [&](const std::string& key) {
        return absl::StrCat(sweep.experiment, "/", key, "/", quantity.name);
      };
      const auto paper = sweep.paper.find(absl::StrCat(sweep_case.key, "/", quantity.name));
      figures.push_back({.name = name(sweep_case.key),
                         .unit = quantity.unit,
                         .values = it->second,
                         .paper = paper == sweep.paper.end() ? std::nullopt : std::optional(paper->second),
                         .baseline = sweep_case.baseline.empty() ? "" : name(sweep_case.baseline)});
    }
  }
  return figures;
}

}  // namespace troupe::sim
