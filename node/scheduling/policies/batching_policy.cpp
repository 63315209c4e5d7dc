#include "node/scheduling/policies/batching_policy.hpp"

#include <algorithm>
#include <array>

namespace troupe::node {

namespace {

constexpr std::uint32_t kDefaultMost = 8;
// Estimates are means: a batch may take so much longer. And it has to serve so much more to be worth a wait.
constexpr int kMarginPercent = 110;
constexpr double kLeastGain = 1.05;

// At most how long a run of that size takes; nothing: it may not be tried yet.
std::optional<Duration> RunOf(std::span<const BatchSize> sizes, std::size_t at) {
  if (sizes[at].run && sizes[at].seen >= kBelievedRuns) return sizes[at].run;
  if (at == 0) return std::nullopt;
  const BatchSize& half = sizes[at - 1];
  if (!half.run || half.seen < kBelievedRuns) return std::nullopt;
  return 2 * *half.run;
}

// A request of these is late by the batch, and would not be late behind those before it.
bool MakesLate(const BatchView& view, std::size_t requests, Duration run, Duration row) {
  const Time begin = view.now + view.backlog;
  const Time end = begin + run * kMarginPercent / 100;
  Time alone = begin;
  for (const BatchCandidate& candidate : view.candidates.first(requests)) {
    alone += row * candidate.rows;
    if (end > candidate.deadline && alone <= candidate.deadline) return true;
  }
  return false;
}

}  // namespace

std::span<const PolicyEntry<BatchingRules>> BatchingPolicies() {
  static constexpr std::array<PolicyEntry<BatchingRules>, 3> kTable = {{
      {"off", "each request has a run of its own", BatchingRules{}},
      {"greedy", "a request takes along what waits for the same function, where that makes no request late",
       BatchingRules{.most = kDefaultMost}},
      {"slack", "and waits for company as far as its deadline lets it, while its GPU is busy anyway",
       BatchingRules{.most = kDefaultMost, .spare_percent = 50, .longest = std::chrono::milliseconds(100)}},
  }};
  return kTable;
}

absl::StatusOr<BatchingRules> FindBatchingPolicy(std::string_view name) {
  return FindPolicy<BatchingRules>("batching", name, BatchingPolicies());
}

BatchChoice ChooseBatch(const BatchView& view) {
  BatchChoice best{.rows = view.candidates.empty() ? 1 : view.candidates.front().rows};
  const auto row = view.sizes.empty() ? std::nullopt : RunOf(view.sizes, 0);
  if (!row) return best;
  double best_time = static_cast<double>(row->count());  // for each row
  std::uint32_t rows = 0;
  std::size_t at = 0;
  for (std::size_t requests = 1; requests <= view.candidates.size(); ++requests) {
    rows += view.candidates[requests - 1].rows;
    while (at < view.sizes.size() && view.sizes[at].rows < rows) ++at;
    if (at == view.sizes.size()) break;
    if (requests == 1 || view.sizes[at].rows != rows || !view.sizes[at].prepared) continue;
    const auto run = RunOf(view.sizes, at);
    if (!run || MakesLate(view, requests, *run, *row)) continue;
    const bool tried = view.sizes[at].seen < kBelievedRuns;
    const double time = static_cast<double>(run->count()) / rows;
    if (!tried && time * kLeastGain > best_time) continue;
    best = {requests, rows, *run};
    best_time = std::min(best_time, time);
  }
  return best;
}

Time CompanyUntil(const BatchingRules& rules, Time deadline, Duration run, Time now) {
  if (rules.spare_percent == 0) return now;
  if (deadline == Time::max()) return now + rules.longest;
  const Duration spare = std::max(deadline - run - now, Duration());
  return now + std::min(rules.longest, spare * rules.spare_percent / 100);
}

}  // namespace troupe::node
