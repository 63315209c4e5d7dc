// FAKE METERS: the meter pages of one simulated machine, which outlive its daemon and its workers; and, for tests,
// all that its workers have ever counted.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/units.hpp"
#include "proto/gpu_instances.hpp"
#include "proto/usage.pb.h"
#include "proto/worker.pb.h"

namespace troupe::actors {

class FakeMeters {
 public:
  using Counts = std::map<std::string, proto::MeterCount>;  // by key

  // Of a worker that starts.
  [[nodiscard]] std::string NewPage() {
    auto name = absl::StrCat("page-", ++made_);
    pages_[name];
    return name;
  }
  void Count(const std::string& page, const std::string& key, std::uint64_t gpu_ns, std::uint64_t runs,
             std::uint64_t bytes) {
    if (key.empty() || page.empty()) return;
    for (auto* counts : {&pages_[page], &counted_}) {
      auto& count = (*counts)[key];
      count.set_key(key);
      count.set_gpu_ns(count.gpu_ns() + gpu_ns);
      count.set_runs(count.runs() + runs);
      count.set_bytes_moved(count.bytes_moved() + bytes);
    }
  }
  // As a worker counts a run before it answers.
  void CountRun(const std::string& page, const proto::RunOrder& run, Duration computed) {
    const auto percent = proto::SmPercentOf(run.sharing());
    Count(page, run.meter(), static_cast<std::uint64_t>((computed * percent / 100).count()),
          static_cast<std::uint64_t>(run.members_size()) + 1, 0);
  }
  // `open`: pages of workers that live.
  [[nodiscard]] std::vector<proto::MeterReading> Read(const std::set<std::string>& open) const {
    std::vector<proto::MeterReading> readings;
    for (const auto& [name, counts] : pages_) {
      auto& reading = readings.emplace_back();
      reading.set_page(name);
      reading.set_closed(!open.contains(name));
      for (const auto& [key, count] : counts) *reading.add_counts() = count;
    }
    return readings;
  }
  void Drop(const std::string& page) { pages_.erase(page); }
  // The machine has lost its memory.
  void LosePages() { pages_.clear(); }

  [[nodiscard]] const std::map<std::string, Counts>& pages() const { return pages_; }
  [[nodiscard]] const Counts& counted() const { return counted_; }

 private:
  std::map<std::string, Counts> pages_;
  Counts counted_;
  std::uint64_t made_ = 0;
};

}  // namespace troupe::actors
