// What came of a run: its figures, and whether every request ended.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "sim/simulation.hpp"

namespace troupe::sim {

void RequestEnds::Count(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      ++served;
      break;
    case absl::StatusCode::kResourceExhausted:
      ++rejected;
      break;
    case absl::StatusCode::kDeadlineExceeded:
      ++expired;
      break;
    case absl::StatusCode::kCancelled:
      ++cancelled;
      break;
    default:
      ++failed;
  }
}

absl::Status Outcome::Conserved() const {
  const auto ended = served + rejected + expired + cancelled + failed;
  if (ended != answers.size() || arrived != ended + waiting || (!ended_early && waiting > 0))
    return absl::InternalError(absl::StrCat(
        "requests were lost: ", arrived, " arrived, ", served, " served, ", rejected, " rejected, ", expired,
        " expired, ", cancelled, " cancelled, ", failed, " failed, ", waiting, " unanswered"));
  if (failed > 0) return absl::InternalError(absl::StrCat(failed, " of ", arrived, " requests failed"));
  return absl::OkStatus();
}

Duration Outcome::MeanLatency() const {
  Duration sum{};
  for (const Answer& answer : answers) sum += answer.code == 0 ? answer.took : Duration();
  return served == 0 ? Duration() : sum / static_cast<Duration::rep>(served);
}

Duration Outcome::LatencyAt(double percentile) const {
  std::vector<Duration> took;
  for (const Answer& answer : answers)
    if (answer.code == 0) took.push_back(answer.took);
  return NearestRank(took, percentile);
}

double Outcome::MissRatio() const {
  return served == 0 ? 0 : static_cast<double>(misses) / static_cast<double>(served);
}

double Outcome::LoadsPerRequest() const {
  return served == 0 ? 0 : static_cast<double>(swaps) / static_cast<double>(served);
}

Duration NearestRank(std::vector<Duration>& values, double percentile) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto rank =
      static_cast<std::size_t>(std::ceil(percentile / 100 * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

}  // namespace troupe::sim
