// Which worker of a GPU is meant, whom it serves, and what its node hears of it.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.hpp"
#include "proto/local.pb.h"
#include "proto/worker.pb.h"

namespace troupe::actors {

//   Starting or Adopting -> Ready -> Assigned -> Starting or Adopting ...
// The incarnation number grows with each start of a worker, and with each new connection to a running worker for
// another key. The executor drops messages with an older number.
class WorkerLife {
 public:
  explicit WorkerLife(std::uint32_t gpu) : gpu_(gpu) {}

  void Starting();
  void Adopting();
  void Ready(proto::WorkerDescription description) { worker_ = std::move(description); }
  // The worker is given to another key. `fresh`: a new worker is; else the present worker is connected anew.
  void Assign(const std::string& key, bool fresh, Time now);

  [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }
  [[nodiscard]] const std::string& serves() const { return serves_; }  // or will; empty: no particular key

  // Makes the report that the executor sends to its node. A READY report also says how long the GPU had no worker:
  // since the last DOWN report, or since the last assignment.
  [[nodiscard]] proto::ExecutorReport Report(proto::ExecutorReport::State state, const std::string& why,
                                             std::uint64_t restarts, Time now);

 private:
  const std::uint32_t gpu_;
  std::uint64_t incarnation_ = 0;
  std::string serves_;
  bool assigned_ = false;  // the next one to be started was asked for
  proto::WorkerDescription worker_;
  Time down_since_{};
};

}  // namespace troupe::actors
