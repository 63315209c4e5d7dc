// WORKER METER: what an order's outcome says that its function used, counted in the worker's page before the
// outcome is answered.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/share_ladder.hpp"
#include "gpu/worker/meter_page.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

class WorkerMeter {
 public:
  // Null: this worker is not metered.
  explicit WorkerMeter(std::shared_ptr<MeterWriter> page = nullptr) : page_(std::move(page)) {}

  // Who pays for an order.
  struct Payer {
    std::string key{};       // empty: the order is not metered
    SmShare share{};         // of its runs; of no SMs: they pay for the whole device
    std::uint32_t runs = 1;  // requests that the run answers: each counts, and the time is theirs together
  };
  [[nodiscard]] Payer PayerOf(const proto::WorkerOrder& order, const ShareLadder& ladder) const;
  // Bytes that passed beside an order's own.
  void CountMoved(const std::string& key, Bytes moved) const;
  // A run pays for the GPU's time that it had while it computed, also when it was cut; one that failed otherwise pays nothing.
  // A transfer pays for the bytes that passed.
  void Count(const Payer& payer, const proto::WorkerOutcome& outcome) const;

 private:
  std::shared_ptr<MeterWriter> page_;
};

}  // namespace troupe::gpu
