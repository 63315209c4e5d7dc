#include "sim/checkers/quota_check.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

using UsedByWindow = std::map<std::int64_t, Duration>;  // of the runs that ended in it

// The most that the function had beyond its limit, over all rows of windows.
Duration MostBeyond(const UsedByWindow& used, Duration limit) {
  Duration most{};
  for (auto first = used.begin(); first != used.end(); ++first) {
    Duration sum{};
    for (auto last = first; last != used.end(); ++last) {
      sum += last->second;
      most = std::max(most, sum - limit * (last->first - first->first + 1));
    }
  }
  return most;
}

}  // namespace

std::vector<std::string> CheckQuotas(const std::vector<QuotaRun>& runs, Duration window) {
  struct Seen {
    UsedByWindow used{};
    std::uint32_t limit = 0;
    Duration longest{};
  };
  std::map<std::pair<std::uint64_t, std::string>, Seen> by_function;
  for (const QuotaRun& run : runs) {
    if (run.limit == 0) continue;
    Seen& seen = by_function[{run.life, run.function}];
    seen.used[run.end.time_since_epoch() / window] += run.end - run.begin;
    seen.limit = std::max(seen.limit, run.limit);  // it may have been changed
    seen.longest = std::max(seen.longest, run.end - run.begin);
  }
  std::vector<std::string> broken;
  for (const auto& [who, seen] : by_function) {
    // A run under way at the end of a window is charged to the next one, whose limit may be used up by others.
    const Duration beyond = MostBeyond(seen.used, window * seen.limit / 100);
    if (beyond <= 2 * seen.longest) continue;
    broken.push_back(absl::StrCat("function ", who.second, " had a GPU for ", FormatDuration(beyond),
                                  " beyond its limit of ", seen.limit, " % of the windows, in life ",
                                  who.first, " of a worker"));
  }
  return broken;
}

}  // namespace troupe::sim
