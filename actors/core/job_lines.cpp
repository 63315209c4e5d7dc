#include "actors/core/job_lines.hpp"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

absl::Status JobLines::Post(const std::string& line, std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = lines_.try_emplace(line);
  auto& jobs = found->second;
  if (jobs.size() >= kLongest)
    return absl::ResourceExhaustedError(absl::StrCat(jobs.size(), " jobs of one line wait already"));
  jobs.push_back(std::move(job));
  if (!is_new) return absl::OkStatus();
  auto status = pool_.Post([this, line] { Work(line); });
  if (!status.ok()) lines_.erase(found);
  return status;
}

void JobLines::Work(const std::string& line) {
  std::unique_lock lock(mutex_);
  const auto found = lines_.find(line);
  for (; !found->second.empty(); found->second.pop_front()) {
    auto job = std::move(found->second.front());
    lock.unlock();
    job();
    job = nullptr;  // what it holds may be large, and may post again when it goes
    lock.lock();
  }
  lines_.erase(found);
}

}  // namespace troupe::actors
