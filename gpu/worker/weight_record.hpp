// WEIGHT RECORD: which weights lie where in a device's memory. It is written at the end of the memory file of a
// virtual GPU, which the daemon keeps, so that the next worker of this GPU finds what a worker that died has
// left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

// One model: the weights are whole.
struct RecordedWeights {
  std::string digest;
  std::uint64_t offset = 0;  // from the begin of the worker's quota
  Bytes size;
};

// A worker writes here after the weights of a model are whole and before they may not be any more, so that its
// death at any moment leaves no model on record that was coming, going or moving. All the same it may have
// written anything, before or while it died: what is read says where to look, and the weights count when they
// are equal to the host copy (WeightChecks). Models beyond kModels are not on record. One thread.
class WeightRecord {
 public:
  static constexpr std::size_t kModels = 4096;
  static constexpr std::size_t kLongestDigest = 128;
  // What a daemon adds to the memory for it.
  [[nodiscard]] static Bytes Size();

  // Over the last `size` bytes of the memory, which the daemon says are a record. InvalidArgument when they
  // cannot be one of this build.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<WeightRecord>> Open(transport::UniqueFd memory,
                                                                          Bytes size);

  // No model is on record.
  [[nodiscard]] bool empty() const;
  // What an earlier worker left, without what makes no sense: each such entry is removed, with a sentence in
  // `dropped`. A record of another build is begun anew.
  [[nodiscard]] std::vector<RecordedWeights> Read(std::vector<std::string>& dropped);
  void Set(const RecordedWeights& weights);
  void Remove(const std::string& digest);

 private:
  struct Page;
  explicit WeightRecord(transport::MemoryFile memory);
  [[nodiscard]] Page& page() const;
  void Clear(std::size_t slot);

  transport::MemoryFile memory_;
  std::unordered_map<std::string, std::size_t> slots_;  // by digest
  std::vector<std::size_t> free_;
};

}  // namespace troupe::gpu
