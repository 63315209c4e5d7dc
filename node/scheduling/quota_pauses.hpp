// QUOTA PAUSES: which functions have used up their time on which GPU, and until when: requests of theirs would
// only keep places there.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.hpp"
#include "node/names.hpp"
#include "node/request.hpp"

namespace troupe::node {

class QuotaPauses {
 public:
  // The worker of the GPU says so.
  void Note(const FunctionNumber& function, GpuIndex gpu, Time until);
  [[nodiscard]] bool IsPaused(const FunctionNumber& function, GpuIndex gpu) const {
    return Until(function, gpu) != Time::min();
  }
  // When the pause of the function on that GPU ends; Time::min(): it has none.
  [[nodiscard]] Time Until(const FunctionNumber& function, GpuIndex gpu) const {
    return pauses_.empty() ? Time::min() : Find(function, gpu);
  }
  // When the next pause ends; Time::max(): there is none.
  [[nodiscard]] Time next_end() const { return next_end_; }
  // Forgets the pauses that are over: the GPUs on which they were.
  [[nodiscard]] std::vector<GpuIndex> End(Time now);

 private:
  struct Pause {
    GpuIndex gpu = 0;
    Time until{};
  };
  [[nodiscard]] Time Find(const FunctionNumber& function, GpuIndex gpu) const;

  absl::flat_hash_map<FunctionNumber, std::vector<Pause>> pauses_;
  Time next_end_ = Time::max();
};

}  // namespace troupe::node
