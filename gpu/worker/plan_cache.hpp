// The plans that a worker has prepared: one per model, precision and concrete input shapes, bounded.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

// Identifies a plan: the digest, what it is computed in, and the inputs by name, whatever their order.
[[nodiscard]] std::string PlanKeyOf(const std::string& digest, std::vector<proto::TensorSpec> inputs,
                                    proto::Precision precision);

// absent -(Put)-> prepared -(least recently used beyond the capacity)-> absent
// A run holds its plan itself, so a plan may leave the cache while it runs. Pure; the main loop's thread.
class PlanCache {
 public:
  explicit PlanCache(std::size_t capacity);
  // Null when absent. Counts as a use.
  [[nodiscard]] std::shared_ptr<DevicePlan> Find(const std::string& key);
  void Put(const std::string& key, const std::string& digest, proto::Precision precision,
           std::shared_ptr<DevicePlan> plan);
  // Most recently used first.
  [[nodiscard]] std::vector<proto::PlanKey> Keys() const;
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    std::string digest;
    proto::Precision precision{};
    std::shared_ptr<DevicePlan> plan;
  };
  const std::size_t capacity_;
  std::list<Entry> entries_;  // most recently used first
  std::map<std::string, std::list<Entry>::iterator> by_key_;
};

}  // namespace troupe::gpu
