// What the probe is made of: each of these asks one thing, and adds what it found.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "gpu/cuda/context.hpp"
#include "gpu/cuda/probe.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

inline void Say(Probed& probed, std::string part, std::string name, std::string value) {
  probed.facts.push_back({std::move(part), std::move(name), std::move(value)});
}
inline std::string Milliseconds(Duration took) {
  return absl::StrFormat("%.3f ms", ToSeconds(took) * 1e3);
}

// How much of the GPU's memory goes meanwhile, also to other processes.
class MemoryLeft {
 public:
  explicit MemoryLeft(const Context& context) : context_(context) { (void)Taken(); }
  // Since the last time that it was asked.
  Bytes Taken();
  // Of all of the GPU's memory: what is not free.
  [[nodiscard]] Bytes gone() const { return total_ - free_; }

 private:
  const Context& context_;
  Bytes free_;
  Bytes total_;
};

// What making, mapping and giving back one unit of memory costs.
void ProbeUnits(Context& context, Probed& probed);
// Each way of registering memory that is mapped for reading, as a worker maps the host region.
void ProbeHostMemory(Context& context, Probed& probed);
// Whether ranges of addresses are given where models want them.
void ProbeAddresses(Context& context, Probed& probed);
// What a place of a share costs, beyond those that show at the start that the GPU has them.
void ProbePlace(Context& context, Probed& probed);
// The rates of the link, by size.
void ProbeCopies(Device& device, Stream& stream, Probed& probed);
// Whether the steps of the libraries work on all SMs and on shares of them, whether they can be recorded, and what
// memory they take.
void ProbeSteps(Device& device, Stream& stream, MemoryLeft& left, Probed& probed);

}  // namespace troupe::gpu::cuda
