// The `batching` slot: which waiting requests of one function are answered by one run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::node {

// The most requests of one run, whatever a function asks for.
inline constexpr std::uint32_t kMostBatch = 64;

struct BatchingRules {
  std::uint32_t most = 1;  // requests of one run, of a function that does not say; 1: none are joined
  // While its GPU is busy anyway, a request waits for company at most for `spare_percent` of the time that its
  // deadline has to spare, and never longer than `longest`. Zero: it does not wait.
  std::uint32_t spare_percent = 0;
  Duration longest{};

  [[nodiscard]] bool Joins() const { return most > 1; }
};

// `off` (default): each request has a run of its own.
// `greedy`: a request that is dispatched takes along what waits.
// `slack`: the same; and a request that would only wait at a GPU waits at the node for company.
[[nodiscard]] std::span<const PolicyEntry<BatchingRules>> BatchingPolicies();
[[nodiscard]] absl::StatusOr<BatchingRules> FindBatchingPolicy(std::string_view name);

// What is known of runs with so many rows, the sum of the leading dimensions of their requests.
struct BatchSize {
  std::uint32_t rows = 1;
  bool prepared = false;          // the GPU has a plan for it, and room for a run
  std::uint32_t seen = 0;         // runs that were measured
  std::optional<Duration> run{};  // how long one takes
};
// A waiting request that could be joined with those before it.
struct BatchCandidate {
  std::uint32_t rows = 1;
  Time deadline = Time::max();
};
struct BatchView {
  Time now{};
  Duration backlog{};  // what the GPU has to do before the run
  std::span<const BatchCandidate>
      candidates{};                    // in the order in which they would run; the first is dispatched
  std::span<const BatchSize> sizes{};  // one row, two, four, ...
};
struct BatchChoice {
  std::size_t requests = 1;  // the first so many of the candidates
  std::uint32_t rows = 1;
  Duration run{};  // how long the run takes, at most, as far as is known; zero: not known
};

// A size of a batch has to be measured so often to be believed; before that it is tried where it makes no
// request late, taken for as slow as its requests one after the other.
inline constexpr std::uint32_t kBelievedRuns = 3;

// The size that answers most requests a second, of those that a sum of the candidates' rows has; but none by
// which a request becomes late that would be in time by itself. Without times of runs of one row nothing is
// joined.
[[nodiscard]] BatchChoice ChooseBatch(const BatchView& view);
// Until when a request that came to its turn now may wait for company: `now` when it may not. `run`: the time
// that it needs to be in time.
[[nodiscard]] Time CompanyUntil(const BatchingRules& rules, Time deadline, Duration run, Time now);

}  // namespace troupe::node
