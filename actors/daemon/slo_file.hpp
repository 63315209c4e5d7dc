// SLO FILE: the counts of a gateway's SLOs in its data directory (`slos`; docs/storage-format.md), so that they go on when the
// gateway is started again. Only the last seconds before a kill are missing. One thread; reading and writing block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/gateway/slo_recorder.hpp"
#include "base/units.hpp"

namespace troupe::actors {

class SloFile {
 public:
  static constexpr Duration kEvery = std::chrono::seconds(10);

  SloFile(const std::string& data, std::shared_ptr<SloRecorder> slos);
  // At the start. What is damaged is told in the log and as if it were not there.
  void Load(Time now);
  // Writes what has changed: at most each kEvery, unless it is the last time.
  void Save(Time now, bool last = false);

 private:
  const std::string path_;
  const std::shared_ptr<SloRecorder> slos_;
  std::uint64_t written_ = 0;  // requests in the file
  Time next_{};
  bool failed_ = false;  // the last time, which was told
};

}  // namespace troupe::actors
