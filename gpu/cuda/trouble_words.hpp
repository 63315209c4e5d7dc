// TROUBLE WORDS: memory of the host that the GPU writes: whether data made no sense to a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/cuda/context.hpp"

namespace troupe::gpu::cuda {

// Words for launches to write to, taken from the driver many at a time: its calls for that wait for all that the
// GPU has to do. Thread-safe. Outlives the words.
class TroubleWords {
 public:
  explicit TroubleWords(Context& context) : context_(context) {}
  ~TroubleWords();
  TroubleWords(const TroubleWords&) = delete;
  TroubleWords& operator=(const TroubleWords&) = delete;

  // Off the path of launches: so many can be taken without a call of the driver.
  absl::Status Provide(std::size_t count);
  // A word that is 0, to be given back with its last holder.
  absl::StatusOr<std::shared_ptr<std::int32_t>> Take();

 private:
  absl::Status Grow();

  Context& context_;
  std::mutex mutex_;
  std::vector<void*> pages_;         // guarded by mutex_, as all below
  std::vector<std::int32_t*> free_;  // each on a cache line of its own
};

}  // namespace troupe::gpu::cuda
