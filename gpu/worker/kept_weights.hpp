// KEPT WEIGHTS: models that an earlier worker of this GPU has left in the device's memory.
//
//   on record -(their range is free: it is taken)-> kept -(Take: an order names the host copy)-> compared
//   on record, kept -(Drop)-> gone      compared -> resident, or gone
// A kept model counts as resident for the node, and nothing reads it before it was compared (WeightChecks).
// The record also follows what becomes of this worker's own models (Note). The main loop's thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/memory/device_memory.hpp"
#include "gpu/worker/weight_record.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

class KeptWeights {
 public:
  // Their names are part of one message to the daemon.
  static constexpr std::size_t kMost = 384;

  // `record`: null where nothing outlives the worker. A memory policy that chooses places itself, and weights
  // that are mapped in blocks, keep nothing: what is on record is dropped, and the report says so.
  KeptWeights(DeviceMemory& memory, std::shared_ptr<WeightRecord> record);

  [[nodiscard]] bool Has(const std::string& digest) const { return kept_.contains(digest); }
  [[nodiscard]] std::size_t size() const { return kept_.size(); }
  [[nodiscard]] std::vector<std::pair<std::string, Bytes>> All() const;
  // Its range is the caller's now, who compares it; it stays on record meanwhile, so that it is kept again
  // should this worker die. Nothing when it is not kept, or has not `size` bytes: then it is dropped.
  [[nodiscard]] std::optional<DeviceRange> Take(const std::string& digest, Bytes size);
  // Its memory is free.
  void Drop(const std::string& digest);

  // What ModelTable::Watch tells.
  void Note(const std::string& digest, const std::optional<DeviceRange>& whole);

  // What was found at the begin, until a daemon has heard of it.
  [[nodiscard]] const proto::KeptWeights& report() const { return report_; }
  void Reported() { report_.Clear(); }

 private:
  void TakeOver(const RecordedWeights& recorded);
  void Dropped(const std::string& why);

  DeviceMemory& memory_;
  std::shared_ptr<WeightRecord> record_;
  std::map<std::string, DeviceRange> kept_;
  proto::KeptWeights report_;
};

}  // namespace troupe::gpu
