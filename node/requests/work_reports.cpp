#include "node/requests/work_reports.hpp"

#include <algorithm>

#include "node/parts.hpp"

namespace troupe::node {

namespace {

using WorkByRouter = absl::flat_hash_map<std::uint64_t, Duration>;

Duration NotOf(std::uint64_t router, const WorkByRouter& work) {
  Duration sum{};
  for (const auto& [other, given] : work)
    if (other != router) sum += given;
  return sum;
}

// A smaller difference rarely leads to another choice.
bool DiffersClearly(Duration now, Duration told) {
  const auto [less, more] = std::minmax(now, told);
  return more - less > std::max<Duration>(std::chrono::milliseconds(1), more / 4);
}

}  // namespace

void WorkReports::Fill(std::uint64_t router, proto::CreditGrant& grant) {
  const Duration others = NotOf(router, parts_.scheduler.WorkByRouter());
  told_[router] = others;
  grant.set_others_ns(others.count());
  grant.set_fit_gpus(fit_gpus_);
}

bool WorkReports::ToldOfAny() const {
  return std::ranges::any_of(told_, [](const auto& told) { return told.second > Duration(); });
}

std::vector<std::uint64_t> WorkReports::Due() const {
  const auto work = parts_.scheduler.WorkByRouter();
  std::vector<std::uint64_t> due;
  for (const auto& [router, told] : told_)
    if (DiffersClearly(NotOf(router, work), told)) due.push_back(router);
  return due;
}

}  // namespace troupe::node
