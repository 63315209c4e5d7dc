// Memory of one GPU as the worker of another one reads it: units exported as descriptors, and imported.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gpu/cuda/memory.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// Another GPU's units, mapped here, and the parts of them that are the range. What was imported stays
// readable when its owner is gone.
class CudaPeerMemory final : public PeerMemory {
 public:
  CudaPeerMemory(const Context& context, std::vector<UnitHandle> handles, MappedUnits mapped,
                 std::vector<SharedRange::Part> parts);
  ~CudaPeerMemory() override;
  [[nodiscard]] Bytes size() const override { return size_; }
  // Where these bytes lie, one after the other.
  [[nodiscard]] std::vector<std::span<const std::byte>> At(Bytes offset, Bytes size) const;

 private:
  const Context& context_;
  const std::vector<UnitHandle> handles_;
  std::optional<MappedUnits> mapped_;
  const std::vector<SharedRange::Part> parts_;
  Bytes size_;
};

// A descriptor for each unit under the range; they wait in a socket, whose other end is what is given away:
// so one descriptor carries them all. It can be read once.
absl::StatusOr<SharedRange> ExportRange(const Context& context, const Memory& memory,
                                        const DeviceRange& range);
// NotFound without a way from GPU `from` to this one, OutOfRange for what leaves the units, InvalidArgument
// for a descriptor that carries none.
absl::StatusOr<std::shared_ptr<const PeerMemory>> ImportRange(const Context& context, int from,
                                                              SharedRange range);
// Whether any other GPU of this host can be read from here.
[[nodiscard]] bool HasPeers(const Context& context);

}  // namespace troupe::gpu::cuda
